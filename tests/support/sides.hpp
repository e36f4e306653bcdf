// A case on two devices: the tested one, and the Cpu as its oracle. Both get the same rounded values.
#pragma once

#include <tests/support/tensors.hpp>

#include <concepts>

namespace tests {

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
  /// Returns these values, which T holds.
  Tensor<Dev> exactly(const Shape& shape, const std::vector<double>& values) {
    auto made = fresh(shape);
    cast(dev, tensor(shape, values).view(), made.mut());
    return made;
  }
  /// Returns the values of make(TypeTag<T>()), rounded to T.
  Tensor<Dev> rounded(const Shape& shape, const auto& make) {
    const std::vector<T> values = make(TypeTag<T>());
    if constexpr (widens) {
      Cpu cpu;
      return tensor(shape, widened(Tensor<Cpu>::from_host(cpu, shape, values)));
    } else {
      return tensor(shape, values);
    }
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

/// Returns the device of a test: a Cpu of two threads, or the default of another type.
template <class Dev>
Dev tested_device() {
  if constexpr (std::same_as<Dev, Cpu>) return Cpu({.threads = 2});
  else return Dev();
}

/// The tested device, and the Cpu as the oracle: in double from the same values or, without `widens`, in T.
template <class T, class Dev, bool widens = true>
struct Sides {
  Side<T, Dev> tested{tested_device<Dev>()};
  Side<T, Cpu, widens> oracle{};

  /// Returns the results of run(side) on both devices.
  template <class Run>
  std::pair<Results, Results> operator()(const Run& run) {
    return {run(tested), run(oracle)};
  }
};

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
/// Returns the largest error of an element, relative to it or, if it is small, to 1; NaN if any number is NaN.
inline double element_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t at = 0; at < expected.size(); ++at) {
    const double error = std::abs(got[at] - expected[at]) / (1 + std::abs(expected[at]));
    if (!(error <= worst)) worst = error;  // keeps a NaN
  }
  return got.size() != expected.size() ? NAN : worst;
}
inline void check_near(const Results& got, const Results& right, double allowed) {
  REQUIRE(got.size() == right.size());
  for (std::size_t at = 0; at < right.size(); ++at) {
    CAPTURE(at);
    CHECK(relative_error(got[at], right[at]) <= allowed);
  }
}

/// Checks that run(side) has the oracle's results on the device, up to the relative error `allowed`.
template <class T, class Dev, class Run>
void agrees_with_oracle(const Run& run, double allowed = tolerance<T>) {
  const auto [got, right] = Sides<T, Dev>()(run);
  check_near(got, right, allowed);
}
/// Checks that run(side) has the same bits on a Cpu of 1, 2 and 3 threads.
template <class T, class Run>
void has_bits_on_threads(const Run& run) {
  const auto on = [&](int threads) {
    Side<T, Cpu> side{Cpu({.threads = threads})};
    return run(side);
  };
  const auto right = on(1);
  for (const int threads : {2, 3}) CHECK(on(threads) == right);
}

}  // namespace tests
