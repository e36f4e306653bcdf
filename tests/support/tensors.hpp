// Helpers of all tests: random tensors, their values as doubles, distances, messages of errors.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>
#include <tests/support/test.hpp>

namespace tests {

// Values of a stream, rounded to T.
template <class T>
Tensor<Cpu> random_tensor(Cpu& dev, const Shape& shape, std::uint32_t use) {
  const RandomStream stream{.seed = 7, .use = use};
  Tensor<Cpu> result(dev, dtype_of<T>(), shape);
  T* values = result.mut().data<T>();
  for (std::int64_t i = 0; i < result.count(); ++i)
    values[i] = static_cast<T>(stream.normal(static_cast<std::uint64_t>(i)));
  return result;
}

inline std::vector<double> widened(const Tensor<Cpu>& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.count()));
  visit_floating(tensor.dtype(), [&]<class T>(TypeTag<T>) {
    const T* from = tensor.view().data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(from[i]);
  });
  return values;
}

// A tensor of these elements on any device.
template <class Dev>
Tensor<Dev> to_device(Dev& dev, const Tensor<Cpu>& from) {
  Tensor<Dev> result(dev, from.dtype(), from.shape());
  dev.copy_from_host(result.mut().bytes(), from.view().bytes(), from.size_bytes());
  return result;
}
// Values of a stream, rounded to a type, on any device.
template <class Dev>
Tensor<Dev> random_tensor(Dev& dev, DType type, const Shape& shape, std::uint32_t use) {
  Cpu cpu;
  Tensor<Cpu> drawn;
  visit_floating(type, [&]<class T>(TypeTag<T>) { drawn = random_tensor<T>(cpu, shape, use); });
  return to_device(dev, drawn);
}
// The values of a view on any device, in double on the host.
template <class Dev>
std::vector<double> widened(Dev& dev, InView<Dev> view) {
  Cpu cpu;
  Tensor<Cpu> host(cpu, view.dtype(), view.shape());
  dev.copy_to_host(host.mut().bytes(), view.bytes(), view.size_bytes());
  return widened(host);
}
// Writes one element from the host; T is the element type.
template <class T, class Dev>
void set_element(Dev& dev, View<Dev> view, std::int64_t at, T value) {
  const auto one = view.as({view.count()}).slice(at, at + 1);
  dev.copy_from_host(reinterpret_cast<std::byte*>(one.template data<T>()),
                     reinterpret_cast<const std::byte*>(&value), sizeof value);
}

// The same values as doubles on the host, to copy them to any device.
inline std::vector<double> random_doubles(const Shape& shape, std::uint32_t use) {
  Cpu cpu;
  return widened(random_tensor<double>(cpu, shape, use));
}

template <class T, class Dev>
Tensor<Dev> tensor_of(Dev& dev, const std::vector<T>& values) {
  return Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values);
}

// Whether body(dev) is the same on 1, 2 and 3 threads.
template <class Body>
bool same_on_threads(Body body) {
  Cpu one, two({.threads = 2}), three({.threads = 3});
  const auto reference = body(one);
  return body(two) == reference && body(three) == reference;
}

// The largest difference, in units of `scale`; NaN if any difference is NaN.
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

}  // namespace tests
