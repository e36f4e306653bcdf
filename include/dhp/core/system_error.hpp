// Errors of calls to the system, told with what the system says about them.
#pragma once

#include <dhp/core/error.hpp>

#include <cerrno>
#include <concepts>
#include <cstring>

namespace dhp {

/// Whether a call went well, and errno as it left it. Made from the condition where that is an argument: others are
/// evaluated before or after it, in an order that the compiler chooses, but not between call and errno.
struct SystemResult {
  bool good;
  int error;
  SystemResult(std::same_as<bool> auto went_well) : good(went_well), error(errno) {}
};

/// check_system(::close(file) == 0, "cannot close ", path): throws Error("cannot close PATH: No space left on device")
/// unless the call went well.
template <class... Parts>
void check_system(SystemResult result, Located first, const Parts&... rest) {
  if (!result.good) [[unlikely]]
    fail(first, rest..., ": ", std::strerror(result.error));
}

}  // namespace dhp
