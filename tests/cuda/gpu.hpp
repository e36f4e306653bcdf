// The device for tests of cuda/: the GPU if nvcc compiles them, otherwise its emulation on the host. A test runs on
// this device and on the Cpu, from the same rounded values.
#pragma once

#ifdef __CUDACC__
#include <dhp/cuda/launch.cuh>
#else
#include <tests/cuda/emulator.hpp>
#endif
#include <tests/support/sides.hpp>

namespace tests {

#ifdef __CUDACC__
using Gpu = dhp::Cuda;
#else
using Gpu = Emulated;
#endif

template <class T, class Run>
std::pair<Results, Results> with_oracle(const Run& run) {
  return Sides<T, Gpu>()(run);
}
/// Returns the values of random_tensor<T>(cpu, shape, use).
template <class T>
Tensor<Gpu> random_on(Gpu& gpu, const Shape& shape, std::uint32_t use) {
  Cpu cpu;
  return to_device(gpu, random_tensor<T>(cpu, shape, use));
}
inline std::vector<double> widened(Gpu& gpu, const Tensor<Gpu>& tensor) {
  return widened<Gpu>(gpu, tensor.view());
}

/// Checks that run(side) has the oracle's results on the GPU, up to the relative error `allowed`.
template <class T, class Run>
void agrees_with_cpu(const Run& run, double allowed = tolerance<T>) {
  agrees_with_oracle<T, Gpu>(run, allowed);
}
/// Checks that run(side) has the same bits on the GPU and on the Cpu.
template <class T, class Run>
void has_bits_of_cpu(const Run& run) {
  const auto [got, expected] = Sides<T, Gpu, false>()(run);
  CHECK(got == expected);
}
/// Calls run(side), which makes its own checks, for the GPU and for the Cpu.
template <class T, class Run>
void on_gpu_and_cpu(const Run& run) {
  Side<T, Gpu> gpu;
  Side<T, Cpu> cpu;
  run(gpu);
  run(cpu);
}

}  // namespace tests
