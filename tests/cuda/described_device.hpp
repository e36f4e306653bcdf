// Requirements of cuDNN for making plans without a GPU.
#pragma once

#include <tests/cuda/described_gpus.hpp>
#include <tests/support/test.hpp>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace tests {

// cuDNN compiles kernels only if it finds the driver's library. On a machine without the driver, DHP_DRIVER_STUB names
// the library of support/driver.cpp. After this library is loaded, cuDNN finds it under the driver's name.
inline bool has_driver_library() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) return true;
  const char* const stub = std::getenv("DHP_DRIVER_STUB");
  if (stub != nullptr && dlopen(stub, RTLD_LAZY) != nullptr) return true;
  MESSAGE("skipped: this machine has no libcuda.so.1, which cuDNN's compiled kernels need");
  return false;
}

/// On a machine with a GPU, cuDNN loads a plan's kernels; with kernels of another GPU it crashed (9.19, on an H200).
inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

}  // namespace tests
