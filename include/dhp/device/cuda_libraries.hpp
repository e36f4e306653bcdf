// Handles and errors of cuBLASLt and cuDNN, and the check that the loaded versions fit the headers.
#pragma once

#include <dhp/device/cuda_error.hpp>

#include <cublasLt.h>
#include <cudnn.h>

namespace dhp {

// The gradient of attention needs cuDNN 9.10.2. Versions before 9.6 need cleared sums, versions before 9.10 need a
// second mask, and 9.10.0 and 9.10.1 have bugs (NVIDIA's cudnn_frontend has the same limits).
static_assert(CUDNN_VERSION >= 91002,
              "dhp needs cuDNN 9.10.2 or later: give its folder to CMake as -DDHP_CUDA_FOLDERS");

namespace detail {
inline void check_cublas(cublasStatus_t code, const char* call,
                         std::source_location where = std::source_location::current()) {
  if (code != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw CudaError(call, static_cast<int>(code), cublasLtGetStatusString(code), where);
}

inline void check_cudnn(cudnnStatus_t code, const char* call,
                        std::source_location where = std::source_location::current()) {
  if (code == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char reason[512] = "";
  cudnnGetLastErrorString(reason, sizeof reason);
  throw CudaError(call, static_cast<int>(code),
                  concat(cudnnGetErrorString(code), reason[0] == 0 ? "" : ": ", reason), where);
}

/// One handle serves all streams of a device, because cuBLASLt's calls take the stream as an argument.
using CublasHandle = CudaOwner<cublasLtHandle_t, cublasLtDestroy>;
[[nodiscard]] inline CublasHandle make_cublas_handle() {
  cublasLtHandle_t result = nullptr;
  check_cublas(cublasLtCreate(&result), "cublasLtCreate");
  return CublasHandle(result);
}

/// Each handle is bound to one stream.
using CudnnHandle = CudaOwner<cudnnHandle_t, cudnnDestroy>;
[[nodiscard]] inline CudnnHandle make_cudnn_handle(cudaStream_t stream) {
  cudnnHandle_t result = nullptr;
  check_cudnn(cudnnCreate(&result), "cudnnCreate");
  CudnnHandle handle(result);
  check_cudnn(cudnnSetStream(result, stream), "cudnnSetStream");
  return handle;
}

/// Throws Error if a loaded library does not fit its header.
inline void check_library_versions() {
  check_library_version("cuDNN", "libcudnn", CUDNN_VERSION, cudnnGetVersion());
  check_library_version("cuBLASLt", "libcublasLt", CUBLAS_VERSION, cublasLtGetVersion());
}
}  // namespace detail

}  // namespace dhp
