// Device Cuda without kernels: any C++ compiler will do.
#include <dhp/device/cuda.hpp>

#include <cstdio>

int main() {
  try {
    std::printf("%d GPUs\n", dhp::detail::usable_gpus());
  } catch (const dhp::Error& error) {
    std::printf("%s\n", error.sentence().c_str());
  }
  return 0;
}
