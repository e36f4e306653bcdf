// The device for tests of cuda/: the GPU if nvcc compiles them, otherwise its emulation on the host. A test runs on
// this device and on the Cpu, from the same rounded values.
#pragma once

#ifdef __CUDACC__
#include <dhp/cuda/launch.cuh>
#else
#include <tests/cuda/emulator.hpp>
#endif
#include <tests/support/tensors.hpp>

namespace tests {

#ifdef __CUDACC__
using Gpu = dhp::Cuda;
#else
using Gpu = Emulated;
#endif

using Results = std::vector<std::vector<double>>;

/// A device and random values, rounded to T or to its accumulation type; with `widens`, then widened to double.
template <class T, class Dev, bool widens = false>
struct Side {
  using A = Accumulator<T>;
  Dev dev{};

  Tensor<Dev> elements(const Shape& shape, std::uint32_t use) { return drawn<T>(shape, use); }
  Tensor<Dev> sums(const Shape& shape, std::uint32_t use) { return drawn<A>(shape, use); }
  Tensor<Dev> fresh(const Shape& shape) { return {dev, type<T>, shape}; }
  Tensor<Dev> fresh_sums(const Shape& shape) { return {dev, type<A>, shape}; }
  template <class U>
  Tensor<Dev> tensor(const Shape& shape, const std::vector<U>& values) {
    return Tensor<Dev>::from_host(dev, shape, values);
  }
  std::vector<double> values(InView<Dev> view) { return widened(dev, view); }
  Results results(const auto&... of) { return {values(of)...}; }

 private:
  template <class U>
  static constexpr DType type = widens ? DType::f64 : dtype_of<U>();
  template <class U>
  Tensor<Dev> drawn(const Shape& shape, std::uint32_t use) {
    Cpu cpu;
    const auto values = random_tensor<U>(cpu, shape, use);
    if constexpr (widens) return tensor(shape, widened(values));
    else return to_device(dev, values);
  }
};

/// The GPU, and the Cpu as the oracle: in double from the same values or, without `widens`, in T to compare bits.
template <class T, bool widens = true>
struct Sides {
  Side<T, Gpu> gpu;
  Side<T, Cpu, widens> cpu;

  /// Returns the results of run(side) on both devices.
  template <class Run>
  std::pair<Results, Results> operator()(const Run& run) {
    return {run(gpu), run(cpu)};
  }
};
template <class T, class Run>
std::pair<Results, Results> with_oracle(const Run& run) {
  return Sides<T>()(run);
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

/// Returns the relative distance in the 2-norm; NaN if any number is NaN.
inline double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0, size = 0;
  for (std::size_t at = 0; at < got.size(); ++at) {
    difference += (got[at] - expected[at]) * (got[at] - expected[at]);
    size += expected[at] * expected[at];
  }
  return got.size() != expected.size() ? NAN : std::sqrt(difference / (size > 0 ? size : 1));
}
/// The largest relative error of one rounding to T and of sums in its accumulation type.
template <class T>
inline constexpr double tolerance = std::is_same_v<T, double>  ? 1e-13
                                    : std::is_same_v<T, float> ? 2e-6
                                    : std::is_same_v<T, f16>   ? 1e-3
                                                               : 8e-3;

/// Checks that run(side) has the oracle's results on the GPU, up to the relative error `allowed`.
template <class T, class Run>
void agrees_with_cpu(const Run& run, double allowed = tolerance<T>) {
  const auto [got, reference] = with_oracle<T>(run);
  for (std::size_t at = 0; at < reference.size(); ++at) {
    CAPTURE(at);
    CHECK(relative_error(got[at], reference[at]) <= allowed);
  }
}
/// Checks that run(side) has the same bits on the GPU and on the Cpu.
template <class T, class Run>
void has_bits_of_cpu(const Run& run) {
  const auto [got, reference] = Sides<T, false>()(run);
  CHECK(got == reference);
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
