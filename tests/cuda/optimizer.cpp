// Optimizer updates and squared norms agree with the Cpu's, and take the same number of launches for any segments.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/optimizer.hpp>
#include <dhp/cpu/segments.hpp>
#include <dhp/cpu/tree_sum.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/optimizer.hpp>
#include <dhp/cuda/segments.hpp>
#include <dhp/cuda/tree_sum.hpp>
#include <dhp/nn/layer.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/weights.hpp>

namespace {

const StepState now{.learning_rate = 0.05, .updates = 3, .gradient_scale = 0.5};

// Returns a learning rate for each of `count` parameters.
template <class Dev>
Tensor<Dev> rates_of(Dev& dev, std::size_t count) {
  std::vector<double> rates;
  for (std::size_t k = 0; k < count; ++k) rates.push_back(0.1 / static_cast<double>(k + 1));
  return Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(count)}, rates);
}

// Compares both devices after two steps and a skipped one. step(dev, weights, state) makes one step.
template <class T, class Step>
void same_as_cpu(const std::vector<Kind>& kinds, Step step) {
  Gpu gpu;
  Cpu cpu;
  Weights<Gpu, T> here(gpu, kinds);
  Weights<Cpu, T> there(cpu, kinds);
  for (int round = 0; round < 2; ++round) {
    step(gpu, here, make_step_state(gpu, now));
    step(cpu, there, make_step_state(cpu, now));
  }
  auto stopped = now;
  stopped.decision = StepDecision::skip;
  step(gpu, here, make_step_state(gpu, stopped));
  for (std::size_t which = 0; which < there.written().size(); ++which) {
    CAPTURE(which);
    const double allowed = which == 4 ? tolerance<T> * 4 : std::is_same_v<T, double> ? 1e-13 : 2e-6;
    CHECK(distance(widened(gpu, *here.written()[which]), widened(*there.written()[which])) <
          allowed);
  }
}

const std::vector<Kind> small{{1}, {3, false}, {0}, {4, true, true}, {5, false, true}, {1037}};

}  // namespace

TEST_CASE_TEMPLATE("SGD agrees with the Cpu, also with a rate for each weight", T, double, float,
                   bf16, f16) {
  for (const auto& update : {detail::SgdUpdate{.weight_decay = 0.1},
                             {.momentum = 0.9},
                             {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
                             {.momentum = 0.9, .weight_decay = 0.1, .rate_in_momentum = true}})
    same_as_cpu<T>(small, [&](auto& dev, auto& w, const auto& state) {
      using Dev = std::remove_reference_t<decltype(dev)>;
      const auto rates = rates_of(dev, w.kinds.size());
      sgd_update(dev, update, w.table, state,
                 update.rate_in_momentum ? rates.view() : ConstView<Dev>(), w.gradient,
                 update.momentum == 0 ? View<Dev>() : w.m.mut(), w.masters.mut());
    });
}

TEST_CASE_TEMPLATE("AdamW and LAMB agree with the Cpu", T, double, float, bf16, f16) {
  const detail::AdamUpdate update{.weight_decay = 0.1};
  for (const auto& kinds : {small, kinds_around_a_tile(), std::vector<Kind>{}}) {
    same_as_cpu<T>(kinds, [&](auto& dev, auto& w, const auto& state) {
      detail::adamw_update(dev, update, w.table, state, w.gradient, w.m.mut(), w.v.mut(),
                           w.masters.mut());
    });
    same_as_cpu<T>(kinds, [&](auto& dev, auto& w, const auto& state) {
      detail::lamb_update(dev, update, w.table, state, rates_of(dev, w.kinds.size()), w.gradient,
                          w.m.mut(), w.v.mut(), w.masters.mut());
    });
  }
}

TEST_CASE_TEMPLATE("LAMB's squared norms agree with the Cpu", T, double, float, bf16, f16) {
  for (const auto& kinds : {small, kinds_around_a_tile()}) {
    const auto squares = [&](auto& dev) {
      using Dev = std::remove_reference_t<decltype(dev)>;
      Weights<Dev, T> w(dev, kinds);
      const detail::AdamUpdate update{.weight_decay = 0.1};
      const auto state = make_step_state(dev, now);
      detail::adamw_update(dev, update, w.table, state, w.gradient, w.m.mut(), w.v.mut(),
                           w.masters.mut());
      auto stopped = now;
      stopped.decision = StepDecision::skip;
      CHECK(lamb_squares_of(dev, update, w, make_step_state(dev, stopped)).second ==
            std::vector<double>(kinds.size()));
      return lamb_squares_of(dev, update, w, state);
    };
    Gpu gpu;
    Cpu cpu;
    const auto found = squares(gpu), expected = squares(cpu);
    const double allowed = std::is_same_v<T, double> ? 1e-13 : 2e-6;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      CHECK(std::abs(found.first[k] - expected.first[k]) <= allowed * expected.first[k]);
      CHECK(std::abs(found.second[k] - expected.second[k]) <= allowed * expected.second[k]);
    }
  }
}

TEST_CASE_TEMPLATE("squared norms of segments agree with the Cpu and have fixed bits", T, double,
                   float, bf16, f16) {
  for (const auto& kinds : {small, kinds_around_a_tile()}) {
    const auto squares = [&](auto& dev, bool of_weights) {
      using Dev = std::remove_reference_t<decltype(dev)>;
      Weights<Dev, T> w(dev, kinds);
      const auto count = static_cast<std::int64_t>(kinds.size());
      const std::vector<double> marks(kinds.size() + 1, -1);
      auto found = Tensor<Dev>::from_host(dev, {count + 1}, marks);
      if (of_weights) weight_squares(dev, w.table, w.masters, found.mut());
      else segment_squares(dev, w.table, w.gradient, found.mut());
      return found.template to_host<double>(dev);
    };
    Gpu gpu;
    Cpu cpu;
    for (const bool of_weights : {false, true}) {
      const auto found = squares(gpu, of_weights);
      const auto expected = squares(cpu, of_weights);
      CHECK(found.back() == -1);
      for (std::size_t k = 0; k < found.size(); ++k)
        CHECK(std::abs(found[k] - expected[k]) <= 1e-13 * std::abs(expected[k]));
      CHECK(squares(gpu, of_weights) == found);
    }
  }
}

TEST_CASE("a segment's squared norm does not depend on its neighbors") {
  Gpu gpu;
  const auto alone = [&](const std::vector<Kind>& kinds) {
    Weights<Gpu, float> w(gpu, kinds);
    // The last segment has the same values in every table.
    const auto count = kinds.back().count;
    const auto own = random_on<float>(gpu, {count}, 5);
    const auto first = w.firsts[kinds.size() - 1];
    gpu.copy(w.gradient.mut().slice(first, first + count).bytes(), own.view().bytes(),
             own.size_bytes());
    Tensor<Gpu> found(gpu, DType::f64, {static_cast<std::int64_t>(kinds.size())});
    segment_squares(gpu, w.table, w.gradient, found.mut());
    return found.to_host<double>(gpu)[w.parameter(kinds.size() - 1)];
  };
  const Kind last{detail::segment_tile + 4111};
  const double expected = alone({last});
  CHECK(expected > 0);
  CHECK(alone({{1}, last}) == expected);
  CHECK(alone({{3 * detail::segment_tile}, {37}, {0}, last}) == expected);
}

#ifndef __CUDACC__
TEST_CASE("a step and its norms need equally many launches for many weights and for one") {
  const AdamWOptions adam{};
  for (const int weights : {1, 20}) {
    Gpu gpu;
    ModelBuilder<Gpu> build(Comm<Gpu>{});
    ParameterList<Gpu> list;
    for (int at = 0; at < weights; ++at)
      list.push_back(build.parameter({.name = concat("weight ", at),
                                      .shape = {1 + at % 5},
                                      .init = constant(1),
                                      .decays = at % 2 == 0,
                                      .keep_fp32 = at % 3 == 0}));
    ParameterStore<Gpu> store(gpu, list, {.compute = DType::bf16});
    Norms<Gpu> norms({}, {}, weights);
    const auto state = make_step_state(gpu, now);
    auto before = gpu.launches;
    const auto launches = [&] { return gpu.launches - std::exchange(before, gpu.launches); };
    const auto squares = norms.gradient_squares(gpu, store);
    CHECK(launches() == 2);
    const auto step_of = [&](auto optimizer) {
      (void)launches();
      optimizer.prepare(gpu, squares.view(), state.view());
      optimizer.apply(gpu, state.view());
      return launches();
    };
    CHECK(step_of(Sgd<Gpu>(gpu, store, {.momentum = 0.9})) == 1);
    CHECK(step_of(AdamW<Gpu>(gpu, store, adam)) == 1);
    CHECK(step_of(detail::Lars<Gpu>(gpu, store, norms, {})) == 4);
    CHECK(step_of(detail::Lamb<Gpu>(gpu, store, norms, LambOptions{})) == 5);
  }
}

TEST_CASE("offloaded optimizer state is in host memory; the Cpu refuses to offload") {
  Gpu gpu;
  ModelBuilder<Gpu> build(Comm<Gpu>{});
  const ParameterList<Gpu> list{build.parameter({.name = "weight", .shape = {100}})};
  ParameterStore<Gpu> store(gpu, list, {.compute = DType::bf16, .state_on_host = true});
  const AdamW<Gpu> optimizer(gpu, store, {});
  CHECK(gpu.host_bytes ==
        3 * sizeof(float) * static_cast<std::size_t>(store.size()));  // masters and two moments
  Cpu cpu;
  const ParameterStore<Cpu> other(cpu, {}, {.state_on_host = true});
  CHECK(message_of([&] { (void)other.make_buffer(cpu); }) ==
        "optimizer state cannot be offloaded: this device's memory is that of the host");
}
#endif
