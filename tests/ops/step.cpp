// The decision on a step: loss scale, clipping, counters, and stops.
#include <dhp/cpu/step.hpp>
#include <tests/support/tensors.hpp>

namespace {

dhp::detail::StepRule scaling(int interval, double largest = 16777216) {
  return {.loss_scale = {.dynamic = true, .growth_interval = interval, .largest = largest}};
}
/// Returns the loss scale after each decision.
std::vector<double> scales(StepState state, const dhp::detail::StepRule& rule,
                           const std::vector<bool>& finite) {
  std::vector<double> found;
  for (const bool each : finite) {
    state = dhp::detail::decided(state, rule, 1, each);
    CHECK(state.applies() == each);
    found.push_back(state.loss_scale);
  }
  return found;
}

}  // namespace

TEST_CASE("loss scale: halves at each overflow, and doubles after a number of good steps") {
  CHECK(scales({.loss_scale = 1024}, scaling(3), {false, true, true, false, true, true, true}) ==
        std::vector<double>{512, 512, 512, 256, 256, 256, 512});
}

TEST_CASE("loss scale: stays between 1 and the maximum") {
  CHECK(scales({.loss_scale = 3}, scaling(1, 10), {false, false}) == std::vector<double>{1.5, 1});
  CHECK(scales({.loss_scale = 1}, scaling(1, 10), {true, true, true, true, true}) ==
        std::vector<double>{2, 4, 8, 10, 10});
}

TEST_CASE("loss scale: at scale 1, or without scaling, overflow stops the run for good") {
  auto at_least = dhp::detail::decided({.loss_scale = 1}, scaling(1), 1, false);
  CHECK(at_least.decision == StepDecision::stop);
  auto fixed = dhp::detail::decided({.loss_scale = 64}, {}, 1, false);
  CHECK(fixed.decision == StepDecision::stop);
  CHECK(fixed.loss_scale == 64);
  fixed = dhp::detail::decided(fixed, {}, 1, true);  // a later step, which alone would be applied
  CHECK(fixed.decision == StepDecision::stop);
  CHECK(fixed.updates == 0);
  CHECK(dhp::detail::decided({.loss_scale = 2}, scaling(1), 1, false).decision ==
        StepDecision::skip);
}

TEST_CASE("clip: only norms above the limit are reduced, to the limit; 0 means none") {
  const auto scale = [](double norm, double limit, double loss_scale = 1) {
    return dhp::detail::decided({.loss_scale = loss_scale}, {.clip = limit}, norm * norm, true)
        .gradient_scale;
  };
  CHECK(scale(4, 1) == 0.25);
  CHECK(scale(1, 1) == 1);
  CHECK(scale(0.5, 1) == 1);
  CHECK(scale(0, 1) == 1);
  CHECK(scale(1e9, 0) == 1);
  // The norm is that of the gradient divided by the loss scale.
  CHECK(scale(4 * 1024, 1, 1024) == 0.25 / 1024);
  CHECK(dhp::detail::decided({.loss_scale = 8}, {}, 64 * 9, true).norm == 3);
}

TEST_CASE("spikes: a disproportionate norm skips its step, unless it becomes usual") {
  const dhp::detail::StepRule rule{.spike = 3};
  const auto after = [&](StepState state, double norm) {
    return dhp::detail::decided(state, rule, norm * norm, true);
  };
  StepState state{};
  state = after(state, 1);
  CHECK(after(state, 100).applies());  // too early for a usual norm
  for (int step = 1; step < 20; ++step) state = after(state, 1);
  CHECK(state.usual_norm == 1);
  CHECK(after(state, 3).applies());
  CHECK(after(state, 3).usual_norm == 1.02);
  const auto spike = after(state, 3.5);
  CHECK(spike.decision == StepDecision::skip);
  CHECK(spike.updates == state.updates);
  CHECK(spike.usual_norm == 1);
  CHECK(after(spike, 1).applies());
  CHECK(after(spike, 1).spikes == 0);
  auto high = state;
  for (int step = 0; step < 10; ++step) {
    high = after(high, 50);
    CHECK_FALSE(high.applies());
  }
  high = after(high, 50);
  CHECK(high.applies());
  CHECK(high.usual_norm == 50);
  CHECK(dhp::detail::decided(state, {}, 1e6, true).applies());  // without the rule
  state.usual_norm = 0;                                         // saved by a run without the rule
  CHECK(after(state, 1).applies());
}

TEST_CASE("decide_step sees every loss and every norm") {
  Cpu dev;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto decide = [&](std::vector<double> losses, std::vector<double> squares) {
    auto state = make_step_state(dev, {.learning_rate = 0.5});
    decide_step(
        dev, {.clip = 1},
        Tensor<Cpu>::from_host(dev, {static_cast<std::int64_t>(losses.size()) / 4, 4}, losses),
        tensor_of(dev, squares), state.mut());
    return read_step_state<Cpu>(dev, state);
  };
  const auto good = decide({1, 2, nan, nan, 3, 4, 5, 6}, {9, 16});  // only the sums count
  CHECK(good.applies());
  CHECK(good.norm == 5);
  CHECK(good.gradient_scale == 0.2);
  CHECK(good.updates == 1);
  CHECK(good.learning_rate == 0.5);
  CHECK(decide({1, 2, 3, 4, nan, 4, 5, 6}, {9, 16}).decision == StepDecision::stop);
  CHECK(decide({1, 2, 3, 4}, {9, std::numeric_limits<double>::infinity()}).decision ==
        StepDecision::stop);
  CHECK(decide({}, {1}).applies());
}

TEST_CASE("objective_scales: are the loss scale divided by each count, 0 for a count of 0") {
  Cpu dev;
  const auto state = make_step_state(dev, {.loss_scale = 8});
  Tensor<Cpu> scales(dev, DType::f64, {3});
  dhp::detail::objective_scales(
      dev, Tensor<Cpu>::from_host(dev, {3}, std::vector<std::int64_t>{4, 0, 32}), state,
      scales.mut());
  CHECK(widened(scales) == std::vector<double>{2, 0, 0.25});
}
