// Each optimizer against its definition in plain doubles: SGD (dampening 0) and AdamW as in PyTorch, LARS by algorithm
// 1 of You, Gitman, Ginsburg 2017, LAMB by algorithm 2 of You et al. 2020 with the identity as phi.
#include <tests/optim/trained.hpp>

namespace {

using Store = ParameterStore<Cpu>;
using Gradient = std::vector<double>;

template <class Make, class Formula>
void steps(const std::string& first, const std::string& second, Make make, Formula formula) {
  for (const auto compute : {DType::f64, DType::f32, DType::bf16, DType::f16})
    three_steps(compute, first, second, make, formula);
}

template <class Options>
Options adam_like() {
  return {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.2};
}
/// Adds the gradient to both moments; returns the direction.
std::vector<double> adam_direction(Reference& p, const Gradient& gradient, const StepState& now,
                                   const auto& options) {
  const auto t = static_cast<double>(now.updates);
  std::vector<double> direction;
  for (std::size_t i = 0; i < p.w.size(); ++i) {
    p.m[i] = options.beta1 * p.m[i] + (1 - options.beta1) * gradient[i];
    p.v[i] = options.beta2 * p.v[i] + (1 - options.beta2) * gradient[i] * gradient[i];
    const double mean = p.m[i] / (1 - std::pow(options.beta1, t));
    const double square = p.v[i] / (1 - std::pow(options.beta2, t));
    direction.push_back(mean / (std::sqrt(square) + options.epsilon));
  }
  return direction;
}

/// Compares a split weight, on two ranks, with the unsplit weight, for optimizers that use norms of whole weights.
template <class Make>
void split_weight(Make make) {
  constexpr std::int64_t rows = 5, columns = 3;
  // Returns this rank's rows after two steps.
  const auto train = [&](Cpu& dev, Comm<Cpu> world, int ranks) {
    Mesh<Cpu> mesh(std::move(world), {.tensor = ranks});
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    const auto weight =
        build.parameter(split({.name = "weight", .shape = {rows, columns}, .init = normal(1)}, 0,
                              ranks, mesh.tensor().rank()));
    // All tensor ranks hold this weight; norms count it once.
    const auto whole = build.parameter({.name = "whole", .shape = {4}, .init = normal(1)});
    ParameterStore<Cpu> store(dev, {weight, whole}, {.compute = DType::f64});
    Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), 2);
    auto optimizer = make(dev, store, norms);
    for (std::uint32_t step = 1; step <= 2; ++step) {
      const auto gradient = random_tensor(dev, DType::f64, {rows, columns}, step);
      const auto mine = ranks > 1 ? weight->spec.part : Range{0, rows};
      const auto put = [&](ConstView<Cpu> from, View<Cpu> to) {
        dev.copy(to.bytes(), from.bytes(), from.size_bytes());
      };
      put(gradient.view().slice(mine.first, mine.last),
          store.gradients(weight->range).as(weight->value.shape()));
      put(random_tensor(dev, DType::f64, {4}, 50 + step), store.gradients(whole->range));
      const auto now = make_step_state(dev, {.learning_rate = 0.1, .updates = step});
      optimizer.prepare(dev, norms.gradient_squares(dev, store), now);
      optimizer.apply(dev, now);
    }
    auto found = widened(dev, weight->value);
    const auto rest = widened(dev, whole->value);
    found.insert(found.end(), rest.begin(), rest.end());
    return found;
  };
  std::vector<double> serial;
  on_ranks_of<Cpu>(1, [&](Cpu& dev, Comm<Cpu> world) { serial = train(dev, std::move(world), 1); });
  on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
    const int rank = world.rank();
    const auto part = part_of(rows, 2, rank);
    std::vector<double> expected(serial.begin() + part.first * columns,
                                 serial.begin() + part.last * columns);
    expected.insert(expected.end(), serial.end() - 4, serial.end());
    const auto found = train(dev, std::move(world), 2);
    REQUIRE(found.size() == expected.size());
    CHECK(distance(found, expected) < 1e-14);
  });
}

}  // namespace

TEST_CASE("sgd: three steps match PyTorch in every precision; biases and norms do not decay") {
  for (const auto& options : {SgdOptions{},
                              {.weight_decay = 0.1},
                              {.momentum = 0.9},
                              {.momentum = 0.8, .weight_decay = 0.1},
                              {.momentum = 0.8, .nesterov = true, .weight_decay = 0.1}}) {
    INFO("options.momentum ", options.momentum, " options.nesterov ", options.nesterov);
    CAPTURE(options.weight_decay);
    const bool momentum = options.momentum != 0;
    steps(
        momentum ? "momentum_buffer" : "", "",
        [&](Cpu& dev, Store& store, const Norms<Cpu>&) { return Sgd<Cpu>(dev, store, options); },
        [&](Reference& p, const Gradient& gradient, const StepState& now) {
          for (std::size_t i = 0; i < p.w.size(); ++i) {
            double g = gradient[i];
            if (p.decays) g += options.weight_decay * p.w[i];
            if (momentum) {
              p.m[i] = options.momentum * p.m[i] + g;
              g = options.nesterov ? g + options.momentum * p.m[i] : p.m[i];
            }
            p.w[i] -= now.learning_rate * g;
          }
        });
  }
}

TEST_CASE("adamw: three steps match PyTorch in every precision; biases and norms do not decay") {
  for (const auto& options : {AdamWOptions{}, adam_like<AdamWOptions>()})
    steps(
        "exp_avg", "exp_avg_sq",
        [&](Cpu& dev, Store& store, const Norms<Cpu>&) { return AdamW<Cpu>(dev, store, options); },
        [&](Reference& p, const Gradient& gradient, const StepState& now) {
          const auto direction = adam_direction(p, gradient, now, options);
          for (std::size_t i = 0; i < p.w.size(); ++i) {
            if (p.decays) p.w[i] -= now.learning_rate * options.weight_decay * p.w[i];
            p.w[i] -= now.learning_rate * direction[i];
          }
        });
}

TEST_CASE(
    "lamb: steps match the paper, biases and norms step like Adam, splitting changes nothing") {
  const auto options = adam_like<LambOptions>();
  const auto make = [&](Cpu& dev, Store& store, const Norms<Cpu>& norms) {
    return detail::Lamb<Cpu>(dev, store, norms, options);
  };
  steps("exp_avg", "exp_avg_sq", make,
        [&](Reference& p, const Gradient& gradient, const StepState& now) {
          auto direction = adam_direction(p, gradient, now, options);
          for (std::size_t i = 0; i < p.w.size(); ++i)
            if (p.decays) direction[i] += options.weight_decay * p.w[i];
          const double weight = length_of(p.w);
          // A weight of zeros gets the plain learning rate.
          const double trust = p.decays && weight > 0 ? weight / length_of(direction) : 1;
          for (std::size_t i = 0; i < p.w.size(); ++i)
            p.w[i] -= now.learning_rate * trust * direction[i];
        });
  split_weight(make);
}

TEST_CASE(
    "lars: steps match the paper, biases and norms are not scaled, splitting changes nothing") {
  for (const auto& options : {LarsOptions{.momentum = 0.8, .weight_decay = 0.2, .trust = 0.5},
                              {.momentum = 0, .weight_decay = 0, .trust = 0.5}}) {
    const auto make = [&](Cpu& dev, Store& store, const Norms<Cpu>& norms) {
      return detail::Lars<Cpu>(dev, store, norms, options);
    };
    steps("momentum_buffer", "", make,
          [&](Reference& p, const Gradient& gradient, const StepState& now) {
            const double decay = p.decays ? options.weight_decay : 0;
            const double weight = length_of(p.w);
            double local = 1;
            // A weight of zeros gets the plain learning rate.
            if (p.decays && weight > 0)
              local = options.trust * weight / (length_of(gradient) + decay * weight);
            for (std::size_t i = 0; i < p.w.size(); ++i) {
              // The momentum includes the learning rate of each step.
              p.m[i] = options.momentum * p.m[i] +
                       now.learning_rate * local * (gradient[i] + decay * p.w[i]);
              p.w[i] -= p.m[i];
            }
          });
    split_weight(make);
  }
}

TEST_CASE("sgd: without momentum there is no state to save") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  ParameterStore<Cpu> store(dev, all_kinds(build), {});
  CHECK(Sgd<Cpu>(dev, store, {.weight_decay = 0.1}).state().empty());
}

TEST_CASE("optimizers: options out of range are refused at construction") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  ParameterStore<Cpu> store(dev, all_kinds(build), {});
  const auto message = [&](const OptimizerChoice& options) {
    return message_of([&] { (void)make_optimizer(dev, store, Norms<Cpu>({}, {}, {6}), options); });
  };
  for (const auto& options : {AdamWOptions{.beta1 = 1}, AdamWOptions{.beta2 = -0.1}})
    CHECK(has(message(options), "the betas of Adam lie from 0 to below 1"));
  CHECK(has(message(AdamWOptions{.weight_decay = NAN}),
            "Adam's epsilon is 1e-37 or more and its weight decay 0 or more, got 1e-08 and nan"));
  CHECK(has(message(LambOptions{.epsilon = 1e-50}), "Adam's epsilon is 1e-37 or more"));
  CHECK(has(message(LarsOptions{.momentum = -1}),
            "momentum and weight decay of LARS are 0 or more and its trust is above 0, got -1, 0 "
            "and 0.001"));
  for (const auto& options : {LarsOptions{.weight_decay = -1}, LarsOptions{.trust = 0}})
    CHECK(has(message(options), "of LARS are 0 or more"));
  CHECK(has(message(SgdOptions{.momentum = -1}), "momentum and weight decay of SGD are 0 or more"));
  CHECK(has(message(SgdOptions{.nesterov = true}), "changes nothing without a momentum"));
}
