// What tests of layers share: random tensors of any type, and parameters that are not what they start as.
#pragma once

#include <dhp/cpu.hpp>
#include <tests/support/tensors.hpp>

namespace tests {

/// Drawn in double, then rounded to the type.
inline Tensor<Cpu> random_of(Cpu& dev, DType type, const Shape& shape, std::uint32_t use) {
  const auto wide = random_tensor<double>(dev, shape, use);
  Tensor<Cpu> made(dev, type, shape);
  cast(dev, wide.view(), made.mut());
  return made;
}

/// Away from 0 and 1, which biases and norms start with.
inline void move_from_start(Cpu& dev, DType compute, const ParameterList<Cpu>& parameters) {
  std::uint32_t use = 100;
  for (const auto& parameter : parameters)
    axpy(dev, 0.3, random_of(dev, compute, parameter->value.shape(), use++).view(),
         parameter->value);
}

}  // namespace tests
