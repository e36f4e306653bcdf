// The learning rate at known steps: warm-up, each decay, and steps after the last one.
#include <dhp/optim/learning_rate.hpp>
#include <tests/support/tensors.hpp>

namespace {

/// 10 steps of warm-up to 0.8, then 20 steps of decay to 0.2.
LearningRate schedule(Decay decay) {
  return {.peak = 0.8,
          .final = 0.2,
          .warmup_steps = 10,
          .total_steps = 30,
          .decay = decay,
          .step_every = decay == Decay::step ? 10 : 0};
}
Approx near(double value) { return Approx(value).epsilon(1e-14); }

}  // namespace

TEST_CASE("learning rate: the warm-up rises in equal steps, is never zero and ends at the peak") {
  for (const auto decay :
       {Decay::constant, Decay::linear, Decay::cosine, Decay::polynomial, Decay::step}) {
    const auto rate = schedule(decay);
    CHECK(rate.at(1) == near(0.08));
    CHECK(rate.at(5) == near(0.4));
    CHECK(rate.at(10) == near(0.8));
    CHECK(rate.at(11) == near(0.8));  // the decay begins at the peak
  }
  CHECK(LearningRate{.peak = 0.3}.at(1) == 0.3);
}

TEST_CASE("learning rate: each decay has the expected rates along its way and beyond") {
  struct Expected {
    Decay decay;
    double quarter, half, end;
  };
  const double root = std::sqrt(0.5);
  for (const auto& each : {Expected{Decay::constant, 0.8, 0.8, 0.8},
                           {Decay::linear, 0.65, 0.5, 0.2},
                           {Decay::cosine, 0.2 + 0.3 * (1 + root), 0.5, 0.2},
                           {Decay::polynomial, 0.2 + 0.6 * 9 / 16, 0.2 + 0.6 / 4, 0.2}}) {
    const auto rate = schedule(each.decay);
    CAPTURE(static_cast<int>(each.decay));
    CHECK(rate.at(16) == near(each.quarter));
    CHECK(rate.at(21) == near(each.half));
    CHECK(rate.at(31) == near(each.end));
    CHECK(rate.at(1001) == near(each.end));
  }
  auto cubic = schedule(Decay::polynomial);
  cubic.power = 3;
  CHECK(cubic.at(21) == near(0.2 + 0.6 / 8));
}

TEST_CASE("learning rate: decay steps count from the end of the warm-up") {
  auto rate = schedule(Decay::step);
  rate.step_every = 5;
  rate.step_factor = 0.5;
  CHECK(rate.at(15) == near(0.8));
  CHECK(rate.at(16) == near(0.4));
  CHECK(rate.at(20) == near(0.4));
  CHECK(rate.at(21) == near(0.2));
  CHECK(rate.at(26) == near(0.1));  // `final` does not apply to this decay
}

TEST_CASE("learning rate: a step decay every 0 steps or fewer is refused from the first step on") {
  auto rate = schedule(Decay::step);
  for (const std::int64_t every : {0, -5}) {
    rate.step_every = every;
    for (const std::int64_t step : {1, 11, 30})
      CHECK(message_of([&] { (void)rate.at(step); }) ==
            concat("step decay drops the learning rate every step_every steps, but step_every is ",
                   every, "; 1 or more would be right"));
  }
  rate.step_every = 1;
  CHECK(rate.at(13) == near(0.008));
}

TEST_CASE("learning rate: a decay without an end is refused from the first step on") {
  for (const auto decay : {Decay::linear, Decay::cosine, Decay::polynomial})
    CHECK(has(message_of([&] { (void)LearningRate{.decay = decay}.at(1); }),
              "a learning rate that decays needs total_steps, but total_steps is 0"));
}

TEST_CASE("learning rate: one that is not finite is refused") {
  CHECK(message_of([] { (void)LearningRate{.peak = NAN}.at(1); }) ==
        "learning rates are finite, but the peak is nan and the final rate 0");
}

TEST_CASE("learning rate: a run that ends within its warm-up has no decay") {
  for (const auto decay : {Decay::linear, Decay::cosine, Decay::polynomial}) {
    const LearningRate rate{.peak = 1, .warmup_steps = 10, .total_steps = 10, .decay = decay};
    CHECK(rate.at(10) == 1);
    CHECK(std::isfinite(rate.at(11)));
    CHECK(rate.at(12) == near(0).scale(1));
  }
}

TEST_CASE("learning rate: a custom function is used, and must be finite") {
  const LearningRate rate{.peak = 7, .warmup_steps = 9, .own = [](auto step) {
                            return 1.0 / static_cast<double>(step - 3);
                          }};
  CHECK(rate.at(5) == 0.5);
  CHECK(message_of([&] { (void)rate.at(3); }) ==
        "learning rates are finite, but that of step 3 is inf");
}

TEST_CASE("learning rate: decays have names, and an unknown name is refused with the list") {
  CHECK(parse_decay("step") == Decay::step);
  CHECK(message_of([] { (void)parse_decay("Cosine"); }) ==
        "unknown learning-rate decay \"Cosine\"; choose constant, linear, cosine, polynomial or "
        "step");
}
