// All optimizers: 16-bit weights have masters, skipped steps change nothing, rates are for one step, names of state.
#include <tests/optim/trained.hpp>

namespace {

std::vector<std::string> names_of(const std::vector<StateBuffer<Cpu>>& state) {
  std::vector<std::string> names;
  for (const auto& each : state) names.push_back(each.name);
  return names;
}

void take_step(Cpu& dev, Optimizer<Cpu>& optimizer, Norms<Cpu> norms, ParameterStore<Cpu>& store,
               const StepState& now) {
  const auto state = make_step_state(dev, now);
  optimizer.prepare(dev, norms.gradient_squares(dev, store), state);
  optimizer.apply(dev, state);
}

/// Calls body(dev, store, norms, optimizer) for each optimizer, over weights with and without masters.
template <class Body>
void for_each_optimizer(Body body) {
  Cpu dev;
  for (const auto compute : {DType::f32, DType::bf16}) {
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    ParameterStore<Cpu> store(dev, all_kinds(build), {.compute = compute, .seed = 2});
    Norms<Cpu> norms({}, {}, 6);
    std::vector<std::unique_ptr<Optimizer<Cpu>>> all;
    all.push_back(std::make_unique<Sgd<Cpu>>(dev, store, SgdOptions{.momentum = 0.9}));
    all.push_back(std::make_unique<AdamW<Cpu>>(dev, store, AdamWOptions{}));
    all.push_back(std::make_unique<detail::Lars<Cpu>>(dev, store, norms, LarsOptions{}));
    all.push_back(std::make_unique<detail::Lamb<Cpu>>(dev, store, norms, LambOptions{}));
    for (auto& optimizer : all) {
      INFO("compute ", to_text(compute), " optimizer->name() ", optimizer->name());
      body(dev, store, norms, *optimizer);
    }
  }
}
/// Returns all that a step may write: values and state.
std::vector<double> everything(Cpu& dev, ParameterStore<Cpu>& store, Optimizer<Cpu>& optimizer) {
  std::vector<double> found;
  const auto add = [&](ConstView<Cpu> view) {
    const auto values = widened(dev, view);
    found.insert(found.end(), values.begin(), values.end());
  };
  for (const auto& parameter : store.parameters()) add(parameter->value);
  for (const auto& each : optimizer.state()) add(each.buffer->view());
  return found;
}

}  // namespace

TEST_CASE("optimizer: master weights accumulate steps too small for 16 bits") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto weight = build.parameter({.name = "w", .shape = {1}, .init = constant(1)});
  ParameterStore<Cpu> store(dev, {weight}, {.compute = DType::bf16});
  Sgd<Cpu> optimizer(dev, store, {});
  fill(dev, store.gradients(weight->range), -1);
  // bf16 has no number between 1 and 1 + 2^-7. Three steps of 2^-9 are nearer to the latter.
  const double expected[] = {1, 1, 1 + 0.0078125};
  for (std::int64_t step = 1; step <= 3; ++step) {
    take_step(dev, optimizer, {{}, {}, 1}, store, {.learning_rate = 1.0 / 512});
    CHECK(widened(dev, weight->value)[0] == expected[step - 1]);
  }
}

TEST_CASE("optimizer: the next step starts from values set from outside") {
  Cpu dev;
  for (const auto compute : {DType::f32, DType::bf16}) {
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    const auto weight = build.parameter({.name = "w", .shape = {3}, .init = constant(1)});
    ParameterStore<Cpu> store(dev, {weight}, {.compute = compute});
    Sgd<Cpu> optimizer(dev, store, {});
    fill(dev, weight->value, 8);
    optimizer.values_changed(dev);
    fill(dev, store.gradients(weight->range), 1);
    take_step(dev, optimizer, {{}, {}, 1}, store, {.learning_rate = 1});
    CHECK(widened(dev, weight->value)[0] == 7);
  }
}

TEST_CASE("optimizer: a skipped step changes neither weights nor state") {
  for_each_optimizer(
      [](Cpu& dev, ParameterStore<Cpu>& store, const Norms<Cpu>& norms, Optimizer<Cpu>& optimizer) {
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

TEST_CASE("optimizer: prepare() writes nothing, and apply() leaves the gradients") {
  for_each_optimizer(
      [](Cpu& dev, ParameterStore<Cpu>& store, Norms<Cpu> norms, Optimizer<Cpu>& optimizer) {
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

TEST_CASE("optimizer: the rates of prepare() are for one apply()") {
  for_each_optimizer(
      [](Cpu& dev, ParameterStore<Cpu>& store, const Norms<Cpu>& norms, Optimizer<Cpu>& optimizer) {
        const bool has_rates = optimizer.name() == "lars" || optimizer.name() == "lamb";
        const StepState state{.learning_rate = 1, .updates = 1};
        take_step(dev, optimizer, norms, store, state);
        CHECK(message_of([&] { optimizer.apply(dev, make_step_state(dev, state)); }) ==
              (has_rates ? "the optimizer " + optimizer.name() +
                               " has no rates for this step: call prepare() before each apply()"
                         : "no error"));
      });
}

TEST_CASE("optimizer: state has PyTorch's names, and only 16 bits have masters") {
  Cpu dev;
  ModelBuilder<Cpu> one(Comm<Cpu>{}), two(Comm<Cpu>{});
  ParameterStore<Cpu> wide(dev, all_kinds(one), {});
  ParameterStore<Cpu> narrow(dev, all_kinds(two), {.compute = DType::bf16});
  const AdamWOptions options{};
  CHECK(names_of(AdamW<Cpu>(dev, wide, options).state()) ==
        std::vector<std::string>{"exp_avg", "exp_avg_sq"});
  CHECK(names_of(AdamW<Cpu>(dev, narrow, options).state()) ==
        std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"});
  CHECK(names_of(Sgd<Cpu>(dev, narrow, {.momentum = 0.9}).state()) ==
        std::vector<std::string>{"master", "momentum_buffer"});
}
