// What cuDNN needs to make plans without a GPU.
#pragma once

#include <tests/cuda/described_gpus.hpp>
#include <tests/support/test.hpp>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace tests {

// cuDNN compiles kernels only where it finds the driver's library. On a machine without one DHP_DRIVER_STUB names
// that of support/driver.cpp: once loaded, cuDNN finds it by the driver's name.
inline bool has_driver_library() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) return true;
  const char* const stub = std::getenv("DHP_DRIVER_STUB");
  if (stub != nullptr && dlopen(stub, RTLD_LAZY) != nullptr) return true;
  MESSAGE("skipped: this machine has no libcuda.so.1, which cuDNN's compiled kernels need");
  return false;
}

/// With a GPU cuDNN loads the kernels of a plan, and crashed with those of another GPU (9.19, on an H200).
inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

}  // namespace tests
