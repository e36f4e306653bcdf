// The device that tests of cuda/ run on: the GPU where nvcc compiles them, else its emulation on the host; and
// what they share. Every op is compared with its twin in cpu/, in double from the same rounded inputs.
#pragma once

#ifdef __CUDACC__
#include <dhp/cuda/launch.cuh>
#else
#include <tests/cuda/emulator.hpp>
#endif
#include <tests/support/tensors.hpp>

#include <vector>

namespace tests {

#ifdef __CUDACC__
using Gpu = dhp::Cuda;
#else
using Gpu = Emulated;
#endif

/// The same elements on the GPU.
inline Tensor<Gpu> to_gpu(Gpu& gpu, const Tensor<Cpu>& from) {
  Tensor<Gpu> made(gpu, from.dtype(), from.shape());
  gpu.copy_from_host(made.mut().bytes(), from.view().bytes(), from.size_bytes());
  return made;
}
inline Tensor<Cpu> to_cpu(Cpu& cpu, Gpu& gpu, const Tensor<Gpu>& from) {
  Tensor<Cpu> made(cpu, from.dtype(), from.shape());
  gpu.copy_to_host(made.mut().bytes(), from.view().bytes(), from.size_bytes());
  return made;
}
inline std::vector<double> widened(Gpu& gpu, const Tensor<Gpu>& tensor) {
  Cpu cpu;
  return widened(to_cpu(cpu, gpu, tensor));
}
/// Random values of a stream, rounded to T, on the GPU; the same as random_tensor<T>(cpu, shape, use).
template <class T>
Tensor<Gpu> random_on(Gpu& gpu, const Shape& shape, std::uint32_t use) {
  Cpu cpu;
  return to_gpu(gpu, random_tensor<T>(cpu, shape, use));
}
/// The same values as f64 on the Cpu: what the oracle starts from.
template <class T>
Tensor<Cpu> oracle_of(Cpu& cpu, const Shape& shape, std::uint32_t use) {
  return Tensor<Cpu>::from_host(cpu, shape, widened(random_tensor<T>(cpu, shape, use)));
}

/// Relative distance in the 2-norm; NaN where anything is NaN.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t at = 0; at < got.size(); ++at) {
    difference += (got[at] - expected[at]) * (got[at] - expected[at]);
    size += expected[at] * expected[at];
  }
  return got.size() != expected.size() ? NAN : std::sqrt(difference / (size > 0 ? size : 1));
}
/// What one rounding to T, and sums in its accumulation type, may cost.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, double>  ? 1e-13
                                    : std::is_same_v<T, float> ? 2e-6
                                    : std::is_same_v<T, f16>   ? 1e-3
                                                               : 8e-3;

}  // namespace tests
