// Prints the compute capability of each GPU, such as "90;90", or fails with CUDA's message.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int count = 0;
  const auto code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    std::printf("%s", code == cudaSuccess ? "none is visible" : cudaGetErrorString(code));
    return 1;
  }
  for (int gpu = 0; gpu < count; ++gpu) {
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) != cudaSuccess)
      return 1;
    std::printf("%s%d", gpu == 0 ? "" : ";", major * 10 + minor);
  }
}
