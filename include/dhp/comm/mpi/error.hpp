// MPI's result codes, as sentences and as exceptions. Needs MPI.
#pragma once

#include <dhp/core/error.hpp>

#include <mpi.h>

#include <source_location>
#include <string>
#include <string_view>

namespace dhp {

/// What MPI says about `code`.
[[nodiscard]] inline std::string mpi_says(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  const bool known = MPI_Error_string(code, text, &length) == MPI_SUCCESS;
  return concat(known ? text : "an error that it does not know", " (code ", code, ")");
}

/// A call of MPI has failed.
class MpiError : public Error {
 public:
  MpiError(const char* call, int code, std::source_location where)
      : Error(concat(call, ": ", mpi_says(code)), where), call_(call), code_(code) {}
  [[nodiscard]] const std::string& call() const noexcept { return call_; }
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  std::string call_;
  int code_;
};

inline void check_mpi(int code, const char* call,
                      std::source_location where = std::source_location::current()) {
  if (code != MPI_SUCCESS) [[unlikely]]
    throw MpiError(call, code, where);
}

}  // namespace dhp
