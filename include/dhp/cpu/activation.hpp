// Implements activation functions and their gradients on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp::detail {

namespace cpu {
/// The functions that a MapRule calls.
struct Mathematics {
  static auto gaussian(auto x) { return cpu::gaussian(x); }
  static auto sigmoid(auto x) { return cpu::sigmoid(x); }
  static auto tanh(auto x) { return fast_tanh(x); }
};
}  // namespace cpu

void map_on(std::same_as<Cpu> auto& dev, const MapRule& rule, ConstView<Cpu> first,
            ConstView<Cpu> second, ConstView<Cpu> third, View<Cpu> y) {
  const auto with_rule = [&]<class F>(const F& f) {
    const auto apply = [f](auto... x) { return f(cpu::Mathematics(), x...); };
    if constexpr (std::is_invocable_v<F, cpu::Mathematics, float>) cpu::map(dev, y, apply, first);
    else if constexpr (std::is_invocable_v<F, cpu::Mathematics, float, float>)
      cpu::map(dev, y, apply, first, second);
    else cpu::map(dev, y, apply, first, second, third);
  };
  std::visit(with_rule, rule);
}

}  // namespace dhp::detail
