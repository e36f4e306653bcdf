// What changes from step to step lives on the device, where kernels read it, so that the host never waits
// for a step, and a step can be recorded once and run again: StepState, the verdict on a step, and the ops
// that depend on it.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

namespace dhp {

/// On the device this is a tensor, f64 [step_state_fields], of these fields in this order.
struct StepState {
  double learning_rate = 0;
  double updates = 0;          ///< that the optimizer has done, the one under way included
  double gradient_scale = 1;   ///< multiplies every gradient: clipping, and 1 / loss scale
  double go = 1;               ///< 0: no optimizer, statistic or counter moves in this step
  double loss_scale = 1;       ///< of the next objective
  double used_loss_scale = 1;  ///< of the objective of the step that was judged last
  double good_steps = 0;       ///< since the loss scale changed
  double norm = 0;             ///< of the gradient, over the whole model, before clipping
  double stopped = 0;          ///< not 0: a step failed, and nothing goes on
};
inline constexpr std::int64_t step_state_fields = sizeof(StepState) / sizeof(double);
using StepFields = std::array<double, std::size_t{step_state_fields}>;

[[nodiscard]] constexpr StepFields fields_of(const StepState& state) {
  return std::bit_cast<StepFields>(state);
}
[[nodiscard]] inline StepState state_of(std::span<const double> fields) {
  StepFields all{};
  check(fields.size() == all.size(), "the state of a step has ", all.size(), " fields, got ",
        fields.size());
  std::copy(fields.begin(), fields.end(), all.begin());
  return std::bit_cast<StepState>(all);
}

template <Device Dev>
[[nodiscard]] Tensor<Dev> make_step_state(Dev& dev, const StepState& state) {
  const auto fields = fields_of(state);
  return Tensor<Dev>::from_host(dev, {step_state_fields}, std::span<const double>(fields));
}
/// Waits for the device.
template <Device Dev>
[[nodiscard]] StepState read_step_state(Dev& dev, In<Dev> state) {
  StepFields fields{};
  dev.copy_to_host(reinterpret_cast<std::byte*>(fields.data()), state.bytes(), sizeof fields);
  return std::bit_cast<StepState>(fields);
}
template <Device Dev>
void check_step_state(In<Dev> state) {
  check(state.dtype() == DType::f64 && state.count() == step_state_fields,
        "the state of a step is f64 [", step_state_fields, "], got ", state.dtype(), " ",
        state.shape());
}

/// Loss scaling (Micikevicius et al. 2018, "Mixed precision training", section 3.2): f16 gradients are computed
/// for a scaled loss.
struct LossScaleOptions {
  bool dynamic = false;  ///< a step whose gradients are not finite is skipped and halves the scale
  double initial = 1;
  double growth = 2;
  int growth_interval = 2000;  ///< steps without a skip before the scale grows
  double largest = 16777216;   ///< 2^24
};

/// How a step is judged. Clipping is by the global norm (Pascanu et al. 2013).
struct StepRule {
  double clip = 0;  ///< largest global gradient norm; 0: no clipping
  LossScaleOptions loss_scale{};
};

/// The verdict. finite: all is finite. At the least scale of all, 1, it is not the scale's fault.
[[nodiscard]] constexpr StepState judged(StepState state, const StepRule& rule, double squares,
                                         bool finite) {
  constexpr double least_scale = 1;
  const auto& scaling = rule.loss_scale;
  state.used_loss_scale = state.loss_scale;
  state.norm = std::sqrt(squares) / state.loss_scale;
  state.go = finite && state.stopped == 0 ? 1 : 0;
  if (state.go == 0) {
    if (!scaling.dynamic || state.loss_scale <= least_scale) state.stopped = 1;
    if (scaling.dynamic)
      state.loss_scale = std::max(least_scale, state.loss_scale / scaling.growth);
    state.good_steps = 0;
    return state;
  }
  const bool clips = rule.clip > 0 && state.norm > rule.clip;
  state.gradient_scale = (clips ? rule.clip / state.norm : 1) / state.loss_scale;
  state.updates += 1;
  state.good_steps += 1;
  if (scaling.dynamic && state.good_steps >= scaling.growth_interval) {
    state.loss_scale = std::min(scaling.largest, state.loss_scale * scaling.growth);
    state.good_steps = 0;
  }
  return state;
}

/// state = judged(state) with losses, f64 [.., loss_fields] (each row's first is a sum that must be finite),
/// and squares, f64 [P], summed in their order.
template <Device Dev>
void judge_step(Dev& dev, const StepRule& rule, In<Dev> losses, In<Dev> squares, Out<Dev> state) {
  check_step_state<Dev>(state);
  check(losses.dtype() == DType::f64 && squares.dtype() == DType::f64,
        "judge_step: losses and squares are f64, got ", losses.dtype(), " and ", squares.dtype());
  judge_step_on(dev, rule, losses, squares, state);
}

/// scales[t] = loss scale / counts[t], or 0 where nothing counts: what one unit of each term's sum weighs
/// in the objective. counts i64 [n], scales f64 [n].
template <Device Dev>
void objective_scales(Dev& dev, In<Dev> counts, In<Dev> state, Out<Dev> scales) {
  check_step_state<Dev>(state);
  check(counts.dtype() == DType::i64 && scales.dtype() == DType::f64 &&
            counts.count() == scales.count(),
        "objective_scales: ", counts.shape(), " of ", counts.dtype(), " and ", scales.shape(),
        " of ", scales.dtype(), " are not i64 and f64 of one count");
  objective_scales_on(dev, counts, state, scales);
}

/// value = (1 - momentum) * value + momentum * mean, where mean = sum / parts; nothing where the step does
/// not go.
template <Device Dev>
void move_towards(Dev& dev, double momentum, std::int64_t parts, In<Dev> state, In<Dev> sum,
                  Out<Dev> value) {
  check_step_state<Dev>(state);
  check(sum.count() == value.count() && sum.dtype() == value.dtype() && parts > 0,
        "move_towards: the sum ", sum.shape(), " of ", sum.dtype(), " over ", parts,
        " parts does not fit ", value.shape(), " of ", value.dtype());
  move_towards_on(dev, momentum, parts, state, sum, value);
}

}  // namespace dhp
