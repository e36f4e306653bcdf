// What all optimizers share: padding that stays zero, masters of 16-bit weights, steps that do not go. On any device.
#pragma once

#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>
#include <tests/optim/trained.hpp>

#include <limits>
#include <memory>

namespace tests {

template <class Dev>
struct OptimizerCases {
  static void padding() {
    auto dev = make_device<Dev>();
    ModelBuilder<Dev> build(Comm<Dev>{});
    ParameterStore<Dev> store(dev, all_kinds(build), {});
    AdamW<Dev> optimizer(dev, store, {.weight_decay = 0.1});
    Norms<Dev> norms({}, {}, 6);
    for (const auto& parameter : store.parameters())
      fill(dev, store.gradients(parameter->range), 1);
    optimizer.step(dev, norms.gradient_squares(dev, store),
                   make_step_state(dev, {.learning_rate = 0.1, .updates = 1}));
    const auto& first = *store.parameters()[0];
    const Range padding{first.range.last, store.parameters()[1]->range.first};
    const auto check_zero = [&](ConstView<Dev> flat) {
      for (const double each : widened(dev, flat.slice(padding.first, padding.last)))
        CHECK(each == 0);
    };
    check_zero(*state_of(optimizer, "exp_avg"));
    check_zero(*state_of(optimizer, "exp_avg_sq"));
    check_zero({first.value.bytes(), first.value.dtype(), {padding.last}});
  }

  static void masters() {
    auto dev = make_device<Dev>();
    ModelBuilder<Dev> build(Comm<Dev>{});
    const auto weight = build.parameter({.name = "w", .shape = {1}, .init = constant(1)});
    ParameterStore<Dev> store(dev, {weight}, {.compute = DType::bf16});
    Sgd<Dev> optimizer(dev, store, {});
    fill(dev, store.gradients(weight->range), -1);
    // bf16 has no number between 1 and 1 + 2^-7; three steps of 2^-9 are nearer to the latter.
    const double expected[] = {1, 1, 1 + 0.0078125};
    for (std::int64_t step = 1; step <= 3; ++step) {
      optimizer.step(dev, {}, make_step_state(dev, {.learning_rate = 1.0 / 512}));
      CHECK(widened(dev, weight->value)[0] == expected[step - 1]);
    }
  }

  static void values_from_outside() {
    auto dev = make_device<Dev>();
    for (const auto compute : {DType::f32, DType::bf16}) {
      ModelBuilder<Dev> build(Comm<Dev>{});
      const auto weight = build.parameter({.name = "w", .shape = {3}, .init = constant(1)});
      ParameterStore<Dev> store(dev, {weight}, {.compute = compute});
      Sgd<Dev> optimizer(dev, store, {});
      fill(dev, weight->value, 8);
      optimizer.values_changed(dev);
      fill(dev, store.gradients(weight->range), 1);
      optimizer.step(dev, {}, make_step_state(dev, {.learning_rate = 1}));
      CHECK(widened(dev, weight->value)[0] == 7);
    }
  }

  static void step_that_does_not_go() {
    auto dev = make_device<Dev>();
    for (const auto compute : {DType::f32, DType::bf16}) {
      ModelBuilder<Dev> build(Comm<Dev>{});
      ParameterStore<Dev> store(dev, all_kinds(build), {.compute = compute, .seed = 2});
      Norms<Dev> norms({}, {}, 6);
      std::vector<std::unique_ptr<Optimizer<Dev>>> all;
      all.push_back(std::make_unique<Sgd<Dev>>(dev, store, SgdOptions{.momentum = 0.9}));
      all.push_back(std::make_unique<AdamW<Dev>>(dev, store, AdamWOptions{}));
      all.push_back(std::make_unique<Lars<Dev>>(dev, store, norms, LarsOptions{}));
      all.push_back(std::make_unique<Lamb<Dev>>(dev, store, norms, LambOptions{}));
      for (auto& optimizer : all) {
        const auto everything = [&] {
          std::vector<double> found;
          const auto add = [&](ConstView<Dev> view) {
            const auto values = widened(dev, view);
            found.insert(found.end(), values.begin(), values.end());
          };
          for (const auto& parameter : store.parameters()) add(parameter->value);
          for (const auto& each : optimizer->state()) add(each.buffer->view());
          return found;
        };
        for (const auto& parameter : store.parameters())
          fill(dev, store.gradients(parameter->range), std::numeric_limits<double>::infinity());
        const auto before = everything();
        optimizer->step(
            dev, norms.gradient_squares(dev, store),
            make_step_state(dev,
                            {.learning_rate = 1, .updates = 1, .decision = StepDecision::skip}));
        CHECK(everything() == before);
        for (const auto& parameter : store.parameters())
          fill(dev, store.gradients(parameter->range), 1);
        optimizer->step(dev, norms.gradient_squares(dev, store),
                        make_step_state(dev, {.learning_rate = 1, .updates = 1}));
        CHECK(everything() != before);
      }
    }
  }
};

}  // namespace tests
