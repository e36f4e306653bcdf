// The state that changes from step to step, the decision on a step, and ops that depend on them. All of this stays on
// the device, so that the host never waits for a step and a recorded step can be replayed.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace dhp {

enum class StepDecision : std::int32_t {
  apply,
  skip,  ///< no weight, statistic or counter changes in this step
  stop,  ///< a step failed; no later step is applied
};

/// The state of a step. On the device it is a tensor, u8 [sizeof(StepState)].
struct StepState {
  double learning_rate = 0;
  std::int64_t updates = 0;     ///< number of optimizer updates, including this one
  double gradient_scale = 1;    ///< factor of every gradient, for clipping and 1 / loss scale
  double loss_scale = 1;        ///< loss scale of the next step
  double used_loss_scale = 1;   ///< loss scale of the step that was decided last
  double norm = 0;              ///< global gradient norm before clipping
  double usual_norm = 0;        ///< moving average over applied steps, to detect spikes
  std::int32_t good_steps = 0;  ///< steps since the last skip or change of the loss scale
  std::int32_t spikes = 0;      ///< consecutive steps skipped because of their norm
  StepDecision decision = StepDecision::apply;

  friend bool operator==(const StepState&, const StepState&) = default;
  [[nodiscard]] constexpr bool applies() const { return decision == StepDecision::apply; }
};
/// Dynamic loss scaling for f16 (Micikevicius et al. 2018, "Mixed precision training", sec. 3.2).
struct LossScaleOptions {
  bool dynamic = false;  ///< non-finite gradients skip the step and divide the scale by `growth`
  double initial = 1, growth = 2;
  int growth_interval = 2000;  ///< steps without a skip before the scale grows
  double largest = 16777216;   ///< 2^24
};

namespace detail {
inline void check_loss_scale(const LossScaleOptions& scale) {
  check(scale.initial > 0 && std::isfinite(scale.initial),
        "a loss scale is finite and above 0, got ", scale.initial);
  check(!scale.dynamic || (scale.growth > 1 && scale.growth_interval >= 1),
        "a dynamic loss scale grows by a factor above 1 after 1 step or more, got ", scale.growth,
        " after ", scale.growth_interval);
  check(!scale.dynamic || scale.largest >= scale.initial, "the largest loss scale, ", scale.largest,
        ", is below the first, ", scale.initial);
}
inline constexpr auto step_state_bytes = static_cast<std::int64_t>(sizeof(StepState));
[[nodiscard]] inline StepState step_state_of(std::span<const std::byte> bytes) {
  check(bytes.size() == sizeof(StepState), "the state of a step has ", sizeof(StepState),
        " bytes, got ", bytes.size());
  StepState state;
  std::memcpy(&state, bytes.data(), sizeof state);
  return state;
}
template <Device Dev>
void check_step_state(InView<Dev> state) {
  check(state.dtype() == DType::u8 && state.count() == step_state_bytes,
        "the state of a step is u8 [", step_state_bytes, "], got ", state.dtype(), " ",
        state.shape());
}
template <Device Dev>
void write_step_state(Dev& dev, const StepState& state, OutView<Dev> to) {
  check_step_state<Dev>(to);
  dev.copy_from_host(to.bytes(), reinterpret_cast<const std::byte*>(&state), sizeof state);
}
/// Writes only the learning rate of a state. to: u8 [sizeof(StepState)].
template <Device Dev>
void write_learning_rate(Dev& dev, double rate, OutView<Dev> to) {
  check_step_state<Dev>(to);
  dev.copy_from_host(to.bytes() + offsetof(StepState, learning_rate),
                     reinterpret_cast<const std::byte*>(&rate), sizeof rate);
}
/// The rule of the step decision. Clipping is by the global norm (Pascanu et al. 2013). Skipping a batch with a
/// disproportionate gradient avoids a loss spike (Chowdhery et al. 2022, "PaLM", sec. 5.1, which skips the batches
/// around the spike).
struct StepRule {
  double clip = 0;  ///< maximum of the global gradient norm; 0: no clipping
  LossScaleOptions loss_scale{};
  /// A gradient norm above this multiple of the usual norm skips the step. 0 turns this off.
  double spike = 0;
  bool skip = false;  ///< replicas request to skip this step

  /// Number of updates before the usual norm is trusted; number of consecutive spikes after which it starts anew.
  static constexpr std::int64_t updates_before_spikes = 20;
  static constexpr std::int32_t max_spikes = 10;
  [[nodiscard]] constexpr bool is_spike(const StepState& state) const {
    return spike > 0 && state.updates >= updates_before_spikes && state.usual_norm > 0 &&
           state.spikes < max_spikes && state.norm > spike * state.usual_norm;
  }
};

/// Decides the step. squares: the squared norm of all gradients. finite: whether losses and gradients are finite. If
/// not, training stops, unless the loss scale is dynamic and above 1: then it shrinks, and the step is skipped.
[[nodiscard]] constexpr StepState decided(StepState state, const StepRule& rule, double squares,
                                          bool finite) {
  constexpr double min_scale = 1;
  const auto& scaling = rule.loss_scale;
  state.used_loss_scale = state.loss_scale;
  state.norm = std::sqrt(squares) / state.loss_scale;
  if (!finite || state.decision == StepDecision::stop) {
    const bool can_shrink = scaling.dynamic && state.loss_scale > min_scale;
    if (!can_shrink) state.decision = StepDecision::stop;
    else if (state.decision != StepDecision::stop) state.decision = StepDecision::skip;
    if (scaling.dynamic) state.loss_scale = std::max(min_scale, state.loss_scale / scaling.growth);
    state.good_steps = state.spikes = 0;
    return state;
  }
  if (rule.skip) {
    state.decision = StepDecision::skip;
    return state;
  }
  if (rule.is_spike(state)) {
    state.decision = StepDecision::skip;
    state.spikes += 1;
    return state;
  }
  state.decision = StepDecision::apply;
  if (rule.spike > 0) {
    constexpr double usual_steps = 100;
    const bool anew = state.usual_norm == 0 || state.spikes == StepRule::max_spikes;
    state.usual_norm =
        anew ? state.norm : state.usual_norm + (state.norm - state.usual_norm) / usual_steps;
  }
  state.spikes = 0;
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
/// scales[t] = loss scale / counts[t], or 0 if the count is 0. This is the derivative of the scaled objective with
/// respect to the sum of loss term t. counts i64 [n], scales f64 [n].
template <Device Dev>
void objective_scales(Dev& dev, InView<Dev> counts, InView<Dev> state, OutView<Dev> scales) {
  check_step_state<Dev>(state);
  check(counts.dtype() == DType::i64 && scales.dtype() == DType::f64 &&
            counts.count() == scales.count(),
        "objective_scales: ", counts.shape(), " of ", counts.dtype(), " and ", scales.shape(),
        " of ", scales.dtype(), " are not i64 and f64 of one count");
  objective_scales_on(dev, counts, state, scales);
}
}  // namespace detail

static_assert(std::is_trivially_copyable_v<StepState> && std::is_standard_layout_v<StepState>);

/// Returns the state as a tensor on the device, u8 [sizeof(StepState)].
template <Device Dev>
[[nodiscard]] Tensor<Dev> make_step_state(Dev& dev, const StepState& state) {
  Tensor<Dev> result(dev, DType::u8, {detail::step_state_bytes});
  detail::write_step_state<Dev>(dev, state, result.mut());
  return result;
}

/// Reads the state back, waiting for the device. state: u8 [sizeof(StepState)].
template <Device Dev>
[[nodiscard]] StepState read_step_state(Dev& dev, InView<Dev> state) {
  detail::check_step_state<Dev>(state);
  StepState read;
  dev.copy_to_host(reinterpret_cast<std::byte*>(&read), state.bytes(), sizeof read);
  return read;
}

/// state = decided(state). squares f64 [P]: squared norms, which are added in order. losses f64 [.., loss_fields]: the
/// step is finite if this sum and the first field of each row of losses are finite.
template <Device Dev>
void decide_step(Dev& dev, const detail::StepRule& rule, InView<Dev> losses, InView<Dev> squares,
                 OutView<Dev> state) {
  detail::check_step_state<Dev>(state);
  check(losses.dtype() == DType::f64 && squares.dtype() == DType::f64,
        "decide_step: losses and squares are f64, got ", losses.dtype(), " and ", squares.dtype());
  decide_step_on(dev, rule, losses, squares, state);
}

}  // namespace dhp
