// Implements activation functions and their gradients on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp::detail {

void activation_forward_on(std::same_as<Cpu> auto& dev, Activation kind, ConstView<Cpu> x,
                           View<Cpu> y) {
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(TypeTag<A>) {
    const auto apply = [&](auto f) { cpu::map<A>(dev, y, f, x); };
    switch (kind) {
      case Activation::relu:
        return apply([](A v) { return v < A(0) ? A(0) : v; });  // NaN stays NaN
      case Activation::gelu: return apply([](auto v) { return v * cpu::gaussian(v).below; });
      case Activation::gelu_tanh:
        return apply([](auto v) { return v * cpu::sigmoid(GeluTanhTerm<decltype(v)>(v).v); });
      case Activation::tanh: return apply([](auto v) { return cpu::fast_tanh(v); });
    }
  });
}
void activation_backward_on(std::same_as<Cpu> auto& dev, Activation kind, ConstView<Cpu> saved,
                            ConstView<Cpu> dy, View<Cpu> dx) {
  visit_accumulator(accumulation_type(dx.dtype()), [&]<class A>(TypeTag<A>) {
    const auto apply = [&](auto f) { cpu::map<A>(dev, dx, f, saved, dy); };
    switch (kind) {
      case Activation::relu: return apply([](A y, A g) { return y > A(0) ? g : A(0); });
      case Activation::gelu:
        return apply([](auto x, auto g) {
          const auto normal = cpu::gaussian(x);
          return g * (normal.below + x * normal.density);
        });
      case Activation::gelu_tanh:
        return apply([](auto x, auto g) {
          const GeluTanhTerm<decltype(x)> term(x);
          return g * term.gradient(x, cpu::sigmoid(term.v), cpu::sigmoid(-term.v));
        });
      case Activation::tanh: return apply([](A y, A g) { return g * (A(1) - y * y); });
    }
  });
}
void swiglu_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> gate, ConstView<Cpu> up,
                       View<Cpu> y) {
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, y, [](auto g, auto u) { return g * cpu::sigmoid(g) * u; }, gate, up);
  });
}
void swiglu_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> gate,
                        ConstView<Cpu> up, View<Cpu> dgate, View<Cpu> dup) {
  visit_accumulator(accumulation_type(dy.dtype()), [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, dgate,
        [](auto d, auto g, auto u) {
          const auto s = cpu::sigmoid(g);
          return d * u * s * (1.0f + g * (1.0f - s));
        },
        dy, gate, up);
    cpu::map<A>(
        dev, dup, [](auto d, auto g) { return d * g * cpu::sigmoid(g); }, dy, gate);
  });
}

}  // namespace dhp::detail
