// Handles of cuBLASLt and cuDNN, and their errors as exceptions. Checks at run time that the libraries
// that were loaded are those that the program was compiled for.
#pragma once

#include <dhp/device/cuda_error.hpp>

#include <cublasLt.h>
#include <cudnn.h>

#include <memory>
#include <type_traits>

namespace dhp {

// Our graph of attention's gradient neither clears its sums (needed before 9.6) nor masks a second time (before 9.10),
// and 9.10.0 and 9.10.1 have bugs there: what cudnn_frontend, which is NVIDIA's own, does or refuses by version.
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

/// cuBLASLt calls take no stream but this: one for all streams of a device.
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

/// Throws where a library differs in its major version, or is older, than the headers it was compiled with.
inline void check_library_versions() {
  const auto check_one = [](const char* name, std::size_t compiled, std::size_t running,
                            std::size_t major, const char* way_out) {
    check(running / major == compiled / major && running >= compiled, name, " ", running,
          " was loaded, but this program was compiled for ", compiled,
          ", and needs the same major version and at least that one: ", way_out);
  };
  check_one("cuDNN", CUDNN_VERSION, cudnnGetVersion(), 10000,
            "put the folder of the right libcudnn into LD_LIBRARY_PATH, or compile again");
  check_one("cuBLASLt", CUBLAS_VERSION, cublasLtGetVersion(), 10000,
            "put the folder of the right libcublasLt into LD_LIBRARY_PATH, or compile again");
}

}  // namespace dhp
