// Implements activation functions and their gradients on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp::detail {

void activation_forward_on(std::same_as<Cpu> auto& dev, Activation kind, ConstView<Cpu> x,
                           View<Cpu> y) {
  const auto apply = [&](auto f) { cpu::map(dev, y, f, x); };
  switch (kind) {
    case Activation::relu:
      return apply([]<class V>(V v) { return v < V{} ? V{} : v; });  // NaN stays NaN
    case Activation::gelu: return apply([](auto v) { return v * cpu::gaussian(v).below; });
    case Activation::gelu_tanh:
      return apply([]<class V>(V v) { return v * cpu::sigmoid(GeluTanhTerm<V>(v).v); });
    case Activation::tanh: return apply([](auto v) { return cpu::fast_tanh(v); });
  }
}
void activation_backward_on(std::same_as<Cpu> auto& dev, Activation kind, ConstView<Cpu> saved,
                            ConstView<Cpu> dy, View<Cpu> dx) {
  const auto apply = [&](auto f) { cpu::map(dev, dx, f, saved, dy); };
  switch (kind) {
    case Activation::relu: return apply([]<class V>(V y, V g) { return y > V{} ? g : V{}; });
    case Activation::gelu:
      return apply([](auto x, auto g) {
        const auto normal = cpu::gaussian(x);
        return g * (normal.below + x * normal.density);
      });
    case Activation::gelu_tanh:
      return apply([]<class V>(V x, V g) {
        const GeluTanhTerm<V> term(x);
        return g * term.gradient(x, cpu::sigmoid(term.v), cpu::sigmoid(-term.v));
      });
    case Activation::tanh: return apply([](auto y, auto g) { return g * (1.0f - y * y); });
  }
}
void swiglu_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> gate, ConstView<Cpu> up,
                       View<Cpu> y) {
  cpu::map(
      dev, y, [](auto g, auto u) { return g * cpu::sigmoid(g) * u; }, gate, up);
}
void swiglu_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> gate,
                        ConstView<Cpu> up, View<Cpu> dgate, View<Cpu> dup) {
  const auto of_gate = [](auto d, auto g, auto u) {
    const auto s = cpu::sigmoid(g);
    return d * u * s * (1.0f + g * (1.0f - s));
  };
  cpu::map(dev, dgate, of_gate, dy, gate, up);
  cpu::map(
      dev, dup, [](auto d, auto g) { return d * g * cpu::sigmoid(g); }, dy, gate);
}

}  // namespace dhp::detail
