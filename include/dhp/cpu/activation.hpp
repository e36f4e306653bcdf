// Activations on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp::detail {

void activation_forward_on(std::same_as<Cpu> auto& dev, Activation kind, ConstView<Cpu> x,
                           View<Cpu> y) {
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(Tag<A>) {
    const auto apply = [&](auto f) { cpu::map<A>(dev, y, f, x); };
    switch (kind) {
      case Activation::relu:
        return apply([](A v) { return v < A(0) ? A(0) : v; });  // NaN stays NaN
      case Activation::gelu: return apply([](A v) { return v * cpu::gaussian(v).below; });
      case Activation::gelu_tanh:
        return apply([](A v) { return v * cpu::sigmoid(GeluTanhTerm<A>(v).v); });
      case Activation::tanh: return apply([](A v) { return cpu::fast_tanh(v); });
    }
  });
}
void activation_backward_on(std::same_as<Cpu> auto& dev, Activation kind, ConstView<Cpu> saved,
                            ConstView<Cpu> dy, View<Cpu> dx) {
  visit_accumulator(accumulation_type(dx.dtype()), [&]<class A>(Tag<A>) {
    const auto apply = [&](auto f) { cpu::map<A>(dev, dx, f, saved, dy); };
    switch (kind) {
      case Activation::relu: return apply([](A y, A g) { return y > A(0) ? g : A(0); });
      case Activation::gelu:
        return apply([](A x, A g) {
          const auto normal = cpu::gaussian(x);
          return g * (normal.below + x * normal.density);
        });
      case Activation::gelu_tanh:
        return apply([](A x, A g) {
          const GeluTanhTerm<A> term(x);
          return g * term.gradient(x, cpu::sigmoid(term.v), cpu::sigmoid(-term.v));
        });
      case Activation::tanh: return apply([](A y, A g) { return g * (A(1) - y * y); });
    }
  });
}
void swiglu_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> gate, ConstView<Cpu> up,
                       View<Cpu> y) {
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(Tag<A>) {
    cpu::map<A>(
        dev, y, [](A g, A u) { return g * cpu::sigmoid(g) * u; }, gate, up);
  });
}
void swiglu_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> gate,
                        ConstView<Cpu> up, View<Cpu> dgate, View<Cpu> dup) {
  visit_accumulator(accumulation_type(dy.dtype()), [&]<class A>(Tag<A>) {
    cpu::map<A>(
        dev, dgate,
        [](A d, A g, A u) {
          const A s = cpu::sigmoid(g);
          return d * u * s * (A(1) + g * (A(1) - s));
        },
        dy, gate, up);
    cpu::map<A>(
        dev, dup, [](A d, A g) { return d * g * cpu::sigmoid(g); }, dy, gate);
  });
}

}  // namespace dhp::detail
