// Implements activation functions and their gradients on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp::detail {

namespace cpu {
/// The functions that rules of elementwise operations call.
struct Mathematics {
  static auto gaussian(auto x) { return cpu::gaussian(x); }
  static auto sigmoid(auto x) { return cpu::sigmoid(x); }
  static auto tanh(auto x) { return fast_tanh(x); }
};
}  // namespace cpu

template <class Rule>
void map_on(std::same_as<Cpu> auto& dev, const Rule& rule, ConstView<Cpu> first,
            ConstView<Cpu> second, ConstView<Cpu> third, View<Cpu> y) {
  const auto apply = [rule](auto... x) { return rule(cpu::Mathematics(), x...); };
  if constexpr (std::is_invocable_v<Rule, cpu::Mathematics, float>) cpu::map(dev, y, apply, first);
  else if constexpr (std::is_invocable_v<Rule, cpu::Mathematics, float, float>)
    cpu::map(dev, y, apply, first, second);
  else cpu::map(dev, y, apply, first, second, third);
}

}  // namespace dhp::detail
