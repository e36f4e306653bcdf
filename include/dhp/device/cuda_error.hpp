// Errors of CUDA's libraries as exceptions: one type with the call, its code and what the library says.
// Every library has its check_...() which throws; destructors, which must not throw, use quietly(). And the check
// that a library which was loaded fits its header.
#pragma once

#include <dhp/core/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <source_location>
#include <string>

namespace dhp {

class CudaError : public Error {
 public:
  CudaError(const std::string& call, int code, const std::string& said, std::source_location where)
      : Error(concat(call, " failed: ", said, " (code ", code, ")"), where), code_(code) {}
  /// As the library numbers its errors.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Throws CudaError unless a call of the CUDA runtime went well; `call` names it and what it was for.
inline void check_cuda(cudaError_t code, const char* call,
                       std::source_location where = std::source_location::current()) {
  if (code != cudaSuccess) [[unlikely]]
    throw CudaError(call, static_cast<int>(code), cudaGetErrorString(code), where);
}

/// Throws where a library, whose file is `file`, differs in its major version from the headers that this program was
/// compiled with, or is older. Versions as NVIDIA's libraries number them: 91900 is 9.19.0.
inline void check_library_version(const char* name, const char* file, std::size_t compiled,
                                  std::size_t running) {
  constexpr std::size_t major = 10000, minor = 100;
  const auto text = [](std::size_t version) {
    return concat(version / major, ".", version % major / minor, ".", version % minor);
  };
  check(running / major == compiled / major && running >= compiled, name, " ", text(running),
        " was loaded, but this program was compiled for ", text(compiled),
        ", and needs the same major version and at least that one: put the folder of the right ",
        file, " into LD_LIBRARY_PATH, or compile again");
}

/// For destructors: there is nobody to tell. The runtime's memory of the error is cleared.
inline void quietly(cudaError_t code) noexcept {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace dhp
