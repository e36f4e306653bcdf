// The loss scale: when it grows, when it shrinks, between what limits, and that its state can be taken up.
#include <dhp/optim/loss_scale.hpp>

#include <doctest/doctest.h>

using dhp::LossScale;

TEST_CASE("loss scale: halves at each overflow, doubles after so many good steps in a row") {
  LossScale scale({.dynamic = true, .initial = 1024, .growth_interval = 3});
  CHECK(scale.value() == 1024);
  CHECK(!scale.update(false));
  CHECK(scale.value() == 512);
  CHECK(scale.update(true));
  CHECK(scale.update(true));
  CHECK(!scale.update(false));  // the row begins anew
  CHECK(scale.value() == 256);
  for (int step = 0; step < 3; ++step) {
    CHECK(scale.value() == 256);
    CHECK(scale.good_steps() == step);
    CHECK(scale.update(true));
  }
  CHECK(scale.value() == 512);
  CHECK(scale.good_steps() == 0);
}

TEST_CASE("loss scale: not below 1 and not above the largest") {
  LossScale scale({.dynamic = true, .initial = 3, .growth_interval = 1, .largest = 10});
  for (const double expected : {1.5, 1.0, 1.0}) {
    CHECK(!scale.update(false));
    CHECK(scale.value() == expected);
  }
  for (const double expected : {2.0, 4.0, 8.0, 10.0, 10.0}) {
    CHECK(scale.update(true));
    CHECK(scale.value() == expected);
  }
}

TEST_CASE("loss scale: a fixed one passes the verdict on and never moves") {
  LossScale scale({.initial = 64, .growth_interval = 1});
  CHECK(!scale.dynamic());
  CHECK(scale.update(true));
  CHECK(!scale.update(false));
  CHECK(scale.value() == 64);
  CHECK(scale.good_steps() == 0);
}

TEST_CASE("loss scale: restored in the middle of a row, it grows at the same step") {
  const dhp::LossScaleOptions options{.dynamic = true, .initial = 8, .growth_interval = 4};
  LossScale straight(options), resumed(options);
  straight.update(false);
  for (int step = 0; step < 2; ++step) straight.update(true);
  resumed.restore(straight.value(), straight.good_steps());
  for (int step = 0; step < 5; ++step) {
    CHECK(resumed.value() == straight.value());
    CHECK(resumed.good_steps() == straight.good_steps());
    straight.update(true);
    resumed.update(true);
  }
  CHECK(straight.value() == 8);
}
