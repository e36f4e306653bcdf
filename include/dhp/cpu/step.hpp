#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/step.hpp>

#include <cmath>

namespace dhp::detail::cpu {

[[nodiscard]] inline const StepState& step_state(ConstView<Cpu> state) {
  return *reinterpret_cast<const StepState*>(state.bytes());
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void decide_step_on(std::same_as<Cpu> auto&, const StepRule& rule, ConstView<Cpu> losses,
                    ConstView<Cpu> squares, View<Cpu> state) {
  double total = 0;
  for (std::int64_t at = 0; at < squares.count(); ++at) total += squares.data<double>()[at];
  bool finite = std::isfinite(total);
  for (std::int64_t row = 0; row < losses.count(); row += losses.columns())
    finite = finite && std::isfinite(losses.data<double>()[row]);
  auto& now = *reinterpret_cast<StepState*>(state.bytes());
  now = decided(now, rule, total, finite);
}
void objective_scales_on(std::same_as<Cpu> auto&, ConstView<Cpu> counts, ConstView<Cpu> state,
                         View<Cpu> scales) {
  const double loss_scale = cpu::step_state(state).loss_scale;
  for (std::int64_t at = 0; at < counts.count(); ++at) {
    const auto count = counts.data<std::int64_t>()[at];
    scales.data<double>()[at] = count == 0 ? 0 : loss_scale / static_cast<double>(count);
  }
}

}  // namespace dhp::detail
