// Handles and errors of cuBLASLt and cuDNN, and the check that the loaded versions fit the headers.
#pragma once

#include <dhp/device/cuda_error.hpp>

#include <cublasLt.h>
#include <cudnn.h>

#include <memory>
#include <type_traits>

namespace dhp {

// Our attention gradient graph relies on 9.10.2: before 9.6 sums need clearing, before 9.10 a
// second mask, and 9.10.0 and 9.10.1 have bugs (NVIDIA's cudnn_frontend has the same limits).
static_assert(CUDNN_VERSION >= 91002,
              "dhp needs cuDNN 9.10.2 or later: give its folder to CMake as -DDHP_CUDA_FOLDERS");

inline void check_cublas(cublasStatus_t code, const char* call,
                         std::source_location where = std::source_location::current()) {
  if (code != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw CudaError(call, static_cast<int>(code), cublasLtGetStatusString(code), where);
}

inline void check_cudnn(cudnnStatus_t code, const char* call,
                        std::source_location where = std::source_location::current()) {
  if (code == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char said[512] = "";
  cudnnGetLastErrorString(said, sizeof said);
  throw CudaError(call, static_cast<int>(code),
                  concat(cudnnGetErrorString(code), said[0] == 0 ? "" : ": ", said), where);
}

/// One handle for all streams of a device: cuBLASLt calls take their stream as an argument.
class CublasHandle {
 public:
  CublasHandle() {
    cublasLtHandle_t made = nullptr;
    check_cublas(cublasLtCreate(&made), "cublasLtCreate");
    handle_.reset(made);
  }
  [[nodiscard]] cublasLtHandle_t get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const noexcept {
      static_cast<void>(cublasLtDestroy(handle));
    }
  };
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Destroy> handle_;
};

/// Bound to one stream.
class CudnnHandle {
 public:
  explicit CudnnHandle(cudaStream_t stream) {
    cudnnHandle_t made = nullptr;
    check_cudnn(cudnnCreate(&made), "cudnnCreate");
    handle_.reset(made);
    check_cudnn(cudnnSetStream(made, stream), "cudnnSetStream");
  }
  [[nodiscard]] cudnnHandle_t get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(cudnnHandle_t handle) const noexcept {
      static_cast<void>(cudnnDestroy(handle));
    }
  };
  std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, Destroy> handle_;
};

/// Throws if a loaded library does not fit its header.
inline void check_library_versions() {
  check_library_version("cuDNN", "libcudnn", CUDNN_VERSION, cudnnGetVersion());
  check_library_version("cuBLASLt", "libcublasLt", CUBLAS_VERSION, cublasLtGetVersion());
}

}  // namespace dhp
