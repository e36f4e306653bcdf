// What all optimizers share: padding that stays zero, masters of 16-bit weights, steps that do not go.
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>
#include <tests/optim/trained.hpp>

#include <limits>
#include <memory>

using namespace tests;

namespace {

double first_of(ConstView<Cpu> view) {
  double found = 0;
  visit_floating(view.dtype(),
                 [&]<class T>(Tag<T>) { found = static_cast<double>(*view.data<T>()); });
  return found;
}

std::vector<std::string> names_of(const std::vector<StateBuffer<Cpu>>& state) {
  std::vector<std::string> names;
  for (const auto& each : state) names.push_back(each.name);
  return names;
}

}  // namespace

TEST_CASE("optimizer: padding between parameters stays zero") {
  Cpu dev;
  Build<Cpu> build;
  ParameterStore<Cpu> store(dev, all_kinds(build), {});
  AdamW<Cpu> optimizer(dev, store, {.weight_decay = 0.1});
  Norms<Cpu> norms({}, {}, 6);
  for (const auto& parameter : store.parameters()) fill(dev, parameter->gradient, 1);
  optimizer.step(dev, norms.gradient_squares(dev, store),
                 make_step_state(dev, {.learning_rate = 0.1, .updates = 1}));
  const auto& first = *store.parameters()[0];
  const auto& second = *store.parameters()[1];
  for (const auto* buffer : {state_of(optimizer, "exp_avg"), state_of(optimizer, "exp_avg_sq")})
    for (auto at = first.range.last; at < second.range.first; ++at)
      CHECK(buffer->view().data<float>()[at] == 0);
  for (auto at = first.range.last; at < second.range.first; ++at)
    CHECK(first.value.data<float>()[at] == 0);
}

TEST_CASE("optimizer: state has PyTorch's names; masters are there for 16 bits alone") {
  Cpu dev;
  Build<Cpu> one, two;
  ParameterStore<Cpu> wide(dev, all_kinds(one), {});
  ParameterStore<Cpu> narrow(dev, all_kinds(two), {.compute = DType::bf16});
  const AdamOptions options{};
  CHECK(names_of(AdamW<Cpu>(dev, wide, options).state()) ==
        std::vector<std::string>{"exp_avg", "exp_avg_sq"});
  CHECK(names_of(AdamW<Cpu>(dev, narrow, options).state()) ==
        std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"});
  CHECK(names_of(Sgd<Cpu>(dev, narrow, {.momentum = 0.9}).state()) ==
        std::vector<std::string>{"master", "momentum_buffer"});
}

TEST_CASE("optimizer: masters add up what is too small for 16 bits") {
  Cpu dev;
  Build<Cpu> build;
  const auto weight = build.parameter({.name = "w", .shape = {1}, .init = constant(1)});
  ParameterStore<Cpu> store(dev, {weight}, {.compute = DType::bf16});
  Sgd<Cpu> optimizer(dev, store, {});
  fill(dev, weight->gradient, -1);
  // bf16 has no number between 1 and 1 + 2^-7; three steps of 2^-9 are nearer to the latter.
  const double expected[] = {1, 1, 1 + 0.0078125};
  for (std::int64_t step = 1; step <= 3; ++step) {
    optimizer.step(dev, {}, make_step_state(dev, {.learning_rate = 1.0 / 512}));
    CHECK(first_of(weight->value) == expected[step - 1]);
  }
}

TEST_CASE("optimizer: weights that are set from outside are where the next step begins") {
  Cpu dev;
  for (const auto compute : {DType::f32, DType::bf16}) {
    Build<Cpu> build;
    const auto weight = build.parameter({.name = "w", .shape = {3}, .init = constant(1)});
    ParameterStore<Cpu> store(dev, {weight}, {.compute = compute});
    Sgd<Cpu> optimizer(dev, store, {});
    fill(dev, weight->value, 8);
    optimizer.values_changed(dev);
    fill(dev, weight->gradient, 1);
    optimizer.step(dev, {}, make_step_state(dev, {.learning_rate = 1}));
    CHECK(first_of(weight->value) == 7);
  }
}

TEST_CASE("optimizer: a step that does not go changes neither weights nor state") {
  Cpu dev;
  for (const auto compute : {DType::f32, DType::bf16}) {
    Build<Cpu> build;
    ParameterStore<Cpu> store(dev, all_kinds(build), {.compute = compute, .seed = 2});
    Norms<Cpu> norms({}, {}, 6);
    std::vector<std::unique_ptr<Optimizer<Cpu>>> all;
    all.push_back(std::make_unique<Sgd<Cpu>>(dev, store, SgdOptions{.momentum = 0.9}));
    all.push_back(std::make_unique<AdamW<Cpu>>(dev, store, AdamOptions{}));
    all.push_back(std::make_unique<Lars<Cpu>>(dev, store, norms, LarsOptions{}));
    all.push_back(std::make_unique<Lamb<Cpu>>(dev, store, norms, AdamOptions{}));
    for (auto& optimizer : all) {
      const auto everything = [&] {
        std::vector<double> found;
        const auto add = [&](ConstView<Cpu> view) {
          const auto values = copy_of(dev, view);
          found.insert(found.end(), values.begin(), values.end());
        };
        for (const auto& parameter : store.parameters()) add(parameter->value);
        for (const auto& each : optimizer->state()) add(each.buffer->view());
        return found;
      };
      for (const auto& parameter : store.parameters())
        fill(dev, parameter->gradient, std::numeric_limits<double>::infinity());
      const auto before = everything();
      optimizer->step(dev, norms.gradient_squares(dev, store),
                      make_step_state(dev, {.learning_rate = 1, .updates = 1, .go = 0}));
      CHECK(everything() == before);
      for (const auto& parameter : store.parameters()) fill(dev, parameter->gradient, 1);
      optimizer->step(dev, norms.gradient_squares(dev, store),
                      make_step_state(dev, {.learning_rate = 1, .updates = 1}));
      CHECK(everything() != before);
    }
  }
}
