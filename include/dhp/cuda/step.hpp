// The state of a step on the GPU. One block decides a step, because the state is only a few numbers.
#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/step.hpp>

#include <cmath>

namespace dhp::detail::cuda {

/// Returns the step's state, which is in device memory.
template <class Dev>
[[nodiscard]] const StepState* step_state(ConstView<Dev> state) {
  return reinterpret_cast<const StepState*>(state.bytes());
}

/// Decides a step in one block. Each thread sums a fixed part of the squares; the parts are added in a fixed order.
struct DecideStep {
  StepRule rule;
  std::int64_t losses, row;  ///< number of losses; length of a row, whose first is tested
  const double* loss;
  std::int64_t parameters;
  const double* squares;
  StepState* state;

  constexpr void operator()(auto& block) const {
    double* const scratch = block.template shared<double>();
    double total = 0, bad = 0;
    for (std::int64_t at = block.thread(); at < parameters; at += block.threads())
      total += squares[at];
    for (std::int64_t at = block.thread() * row; at < losses; at += block.threads() * row)
      if (!(std::fabs(loss[at]) <= largest_double)) bad = 1;
    total = block_reduce(block, total, scratch);
    bad = block_reduce(block, bad, scratch, Largest{});
    const bool finite = bad == 0 && total <= largest_double;  // false for NaN
    if (block.thread() == 0) *state = decided(*state, rule, total, finite);
  }
  static constexpr double largest_double = 1.7976931348623157e308;
};

struct ObjectiveScale {
  const StepState* state;
  constexpr double operator()(std::int64_t count) const {
    return count == 0 ? 0 : state->loss_scale / static_cast<double>(count);
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void decide_step_on(Dev& dev, const StepRule& rule, ConstView<Dev> losses, ConstView<Dev> squares,
                    View<Dev> state) {
  const cuda::Grid grid{1, 256, cuda::block_reduce_scratch * sizeof(double)};
  const std::int64_t row = losses.count() == 0 ? 1 : losses.columns();
  launch(dev, grid,
         cuda::DecideStep{rule, losses.count(), row, losses.data(), squares.count(), squares.data(),
                          reinterpret_cast<StepState*>(state.bytes())});
}
template <KernelDevice Dev>
void objective_scales_on(Dev& dev, ConstView<Dev> counts, ConstView<Dev> state, View<Dev> scales) {
  cuda::map(dev, counts.count(), cuda::ObjectiveScale{cuda::step_state<Dev>(state)},
            scales.template data<double>(), counts.template data<std::int64_t>());
}

}  // namespace dhp::detail
