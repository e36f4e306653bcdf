// Errors of CUDA's libraries as exceptions: one type with the call, its code and what the library says.
// Every library has its check_...() which throws; destructors, which must not throw, use quietly().
#pragma once

#include <dhp/core/error.hpp>

#include <cuda_runtime_api.h>

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

/// For destructors: there is nobody to tell. The runtime's memory of the error is cleared.
inline void quietly(cudaError_t code) noexcept {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace dhp
