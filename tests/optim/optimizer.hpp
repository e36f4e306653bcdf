// What all optimizers share: padding that stays zero, masters of 16-bit weights, steps that do not go. On any device.
#pragma once

#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>
#include <tests/optim/trained.hpp>

namespace tests {

template <class Dev>
class OptimizerCases {
 public:
  static void check_all() {
    for (const auto check : {padding, masters, values_from_outside, step_that_does_not_go,
                             prepare_writes_nothing, apply_needs_prepare})
      check();
  }

 private:
  /// That between parameters stays zero.
  static void padding() {
    auto dev = make_device<Dev>();
    ModelBuilder<Dev> build(Comm<Dev>{});
    ParameterStore<Dev> store(dev, all_kinds(build), {});
    AdamW<Dev> optimizer(dev, store, {.weight_decay = 0.1});
    Norms<Dev> norms({}, {}, 6);
    for (const auto& parameter : store.parameters())
      fill(dev, store.gradients(parameter->range), 1);
    take_step(dev, optimizer, norms, store, {.learning_rate = 0.1, .updates = 1});
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

  /// They add up steps too small for 16 bits.
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
      take_step(dev, optimizer, {{}, {}, 1}, store, {.learning_rate = 1.0 / 512});
      CHECK(widened(dev, weight->value)[0] == expected[step - 1]);
    }
  }

  /// The next step starts from them.
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
      take_step(dev, optimizer, {{}, {}, 1}, store, {.learning_rate = 1});
      CHECK(widened(dev, weight->value)[0] == 7);
    }
  }

  /// It changes neither weights nor state.
  static void step_that_does_not_go() {
    for_each_optimizer([](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms,
                          Optimizer<Dev>& optimizer) {
      for (const auto& parameter : store.parameters())
        fill(dev, store.gradients(parameter->range), std::numeric_limits<double>::infinity());
      const auto before = everything(dev, store, optimizer);
      take_step(dev, optimizer, norms, store,
                {.learning_rate = 1, .updates = 1, .decision = StepDecision::skip});
      CHECK(everything(dev, store, optimizer) == before);
      for (const auto& parameter : store.parameters())
        fill(dev, store.gradients(parameter->range), 1);
      take_step(dev, optimizer, norms, store, {.learning_rate = 1, .updates = 1});
      CHECK(everything(dev, store, optimizer) != before);
    });
  }

  /// And apply() leaves the gradients.
  static void prepare_writes_nothing() {
    for_each_optimizer(
        [](Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, Optimizer<Dev>& optimizer) {
          for (std::int64_t step = 1; step <= 2; ++step) {
            for (const auto& parameter : store.parameters())
              fill(dev, store.gradients(parameter->range), static_cast<double>(step));
            const auto state = make_step_state(dev, {.learning_rate = 1, .updates = step});
            const auto squares = norms.gradient_squares(dev, store);
            const auto gradients = widened(dev, store.gradients());
            const auto before = everything(dev, store, optimizer);
            optimizer.prepare(dev, squares, state);
            CHECK(everything(dev, store, optimizer) == before);
            optimizer.apply(dev, state);
            CHECK(everything(dev, store, optimizer) != before);
            CHECK(widened(dev, store.gradients()) == gradients);
          }
        });
  }

  /// Its rates are for one apply().
  static void apply_needs_prepare() {
    for_each_optimizer([](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms,
                          Optimizer<Dev>& optimizer) {
      const bool has_rates = optimizer.name() == "lars" || optimizer.name() == "lamb";
      const StepState state{.learning_rate = 1, .updates = 1};
      take_step(dev, optimizer, norms, store, state);
      CHECK(message_of([&] { optimizer.apply(dev, make_step_state(dev, state)); }) ==
            (has_rates ? "the optimizer " + optimizer.name() +
                             " has no rates for this step: call prepare() before each apply()"
                       : "no error"));
    });
  }

  static void take_step(Dev& dev, Optimizer<Dev>& optimizer, Norms<Dev> norms,
                        ParameterStore<Dev>& store, const StepState& now) {
    const auto state = make_step_state(dev, now);
    optimizer.prepare(dev, norms.gradient_squares(dev, store), state);
    optimizer.apply(dev, state);
  }

  /// body(dev, store, norms, optimizer) with each kind, over weights with masters and without.
  template <class Body>
  static void for_each_optimizer(Body body) {
    auto dev = make_device<Dev>();
    for (const auto compute : {DType::f32, DType::bf16}) {
      ModelBuilder<Dev> build(Comm<Dev>{});
      ParameterStore<Dev> store(dev, all_kinds(build), {.compute = compute, .seed = 2});
      Norms<Dev> norms({}, {}, 6);
      std::vector<std::unique_ptr<Optimizer<Dev>>> all;
      all.push_back(std::make_unique<Sgd<Dev>>(dev, store, SgdOptions{.momentum = 0.9}));
      all.push_back(std::make_unique<AdamW<Dev>>(dev, store, AdamWOptions{}));
      all.push_back(std::make_unique<detail::Lars<Dev>>(dev, store, norms, LarsOptions{}));
      all.push_back(std::make_unique<detail::Lamb<Dev>>(dev, store, norms, LambOptions{}));
      for (auto& optimizer : all) {
        INFO("compute ", to_text(compute), " optimizer->name() ", optimizer->name());
        body(dev, store, norms, *optimizer);
      }
    }
  }
  /// What a step may write: all values, all state.
  static std::vector<double> everything(Dev& dev, ParameterStore<Dev>& store,
                                        Optimizer<Dev>& optimizer) {
    std::vector<double> found;
    const auto add = [&](ConstView<Dev> view) {
      const auto values = widened(dev, view);
      found.insert(found.end(), values.begin(), values.end());
    };
    for (const auto& parameter : store.parameters()) add(parameter->value);
    for (const auto& each : optimizer.state()) add(each.buffer->view());
    return found;
  }
};

}  // namespace tests
