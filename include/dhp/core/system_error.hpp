// check_system() throws the errors of system calls, with the text of errno.
#pragma once

#include <dhp/core/error.hpp>

#include <cerrno>
#include <concepts>
#include <cstring>

namespace dhp::detail {

/// Whether a system call succeeded, and its errno. The implicit conversion from bool saves errno before later code can
/// change it.
struct SystemResult {
  bool good;
  int error;
  SystemResult(std::same_as<bool> auto went_well) : good(went_well), error(errno) {}
};

/// The Error of a system call. number: its errno.
struct SystemError : Error {
  SystemError(const std::string& sentence, std::source_location where, int of)
      : Error(sentence, where), number(of) {}
  int number;
};

/// check_system(::close(file) == 0, "cannot close ", path) throws SystemError("cannot close PATH: No space left on
/// device").
void check_system(SystemResult result, Located first, const auto&... rest) {
  if (!result.good) [[unlikely]]
    throw SystemError(concat(first.text, rest..., ": ", std::strerror(result.error)), first.where,
                      result.error);
}

}  // namespace dhp::detail
