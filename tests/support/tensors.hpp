// What tests of ops share: random tensors, their values in double, distances, numerical gradients.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace tests {

using namespace dhp;

// Values of a stream, rounded to T.
template <class T>
Tensor<Cpu> random_tensor(Cpu& dev, const Shape& shape, std::uint32_t use) {
  const RandomStream stream{.seed = 7, .use = use};
  Tensor<Cpu> made(dev, dtype_of<T>(), shape);
  T* values = made.mut().data<T>();
  for (std::int64_t i = 0; i < made.count(); ++i)
    values[i] = static_cast<T>(stream.normal(static_cast<std::uint64_t>(i)));
  return made;
}

inline std::vector<double> widened(const Tensor<Cpu>& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.count()));
  visit_floating(tensor.dtype(), [&]<class T>(Tag<T>) {
    const T* from = tensor.view().data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(from[i]);
  });
  return values;
}

// The same values in double, on the host: any device can be given them.
inline std::vector<double> random_doubles(const Shape& shape, std::uint32_t use) {
  Cpu cpu;
  return widened(random_tensor<double>(cpu, shape, use));
}

// The largest difference, in units of scale; NaN if there is any.
inline double distance(const std::vector<double>& got, const std::vector<double>& expected,
                       double scale = 1) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]) / scale;
    if (!(error <= worst)) worst = error;  // keeps a NaN
  }
  return worst;
}

// The message of the Error that body throws.
template <class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.sentence();
  }
  return "no error";
}

// sum(x * weight): a loss whose gradient with respect to x is weight.
inline double weighted_sum(const Tensor<Cpu>& x, const Tensor<Cpu>& weight) {
  const auto values = widened(x);
  const auto factors = widened(weight);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * factors[i];
  return sum;
}

// Central differences of loss() with respect to every element of x (f64).
template <class Loss>
std::vector<double> numerical_gradient(Tensor<Cpu>& x, Loss&& loss, double step = 1e-5) {
  std::vector<double> gradient;
  double* values = x.mut().data<double>();
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double kept = values[i];
    values[i] = kept + step;
    const double above = loss();
    values[i] = kept - step;
    const double below = loss();
    values[i] = kept;
    gradient.push_back((above - below) / (2 * step));
  }
  return gradient;
}

}  // namespace tests
