// A constant contribution to a gradient, on any device.
#pragma once

#include <dhp/nn/parameter_store.hpp>
#include <tests/support/tensors.hpp>

namespace tests {

/// Adds `value` to each element of a gradient in double.
template <class Dev>
void add_to_gradient(Dev& dev, ParameterState<Dev>& parameter, double value) {
  parameter.accumulate(dev, [&](View<Dev> gradient, double beta) {
    auto values = widened(dev, gradient);
    for (auto& each : values) each = (beta == 0 ? 0 : beta * each) + value;
    dev.copy_from_host(gradient.bytes(), reinterpret_cast<const std::byte*>(values.data()),
                       gradient.size_bytes());
  });
}

}  // namespace tests
