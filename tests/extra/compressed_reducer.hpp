// Compressing reducers on any device. Gradients are random numbers by replica, step and parameter.
#pragma once

#include <dhp/comm/observe/count.hpp>
#include <dhp/extra/all_training_options.hpp>
#include <dhp/nn/model_builder.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

using Values = std::vector<double>;

/// The results of a run.
struct CompressedRun {
  std::vector<std::vector<std::vector<Values>>> sums;  ///< [replica][step][parameter]
  std::vector<std::vector<Values>> unsent;             ///< [replica][matrix], after the last step
  std::shared_ptr<CallCounts> counts;                  ///< calls of replica 0
};

/// The loss scale of a step, and the decision on it.
struct CompressedStep {
  double scale = 1;  ///< the loss scale
  StepDecision decision = StepDecision::apply;
  double spoiled = 0;  ///< if not 0, written into replica 1's gradients
  int number = 0;      ///< step number that the gradients depend on
};

template <class Dev>
class CompressedCases {
 public:
  static constexpr std::array<int, 3> matrices{0, 2, 5};  // indices of the trained matrices

  static ParameterStore<Dev> make_store(Dev& dev,
                                        ParameterStoreOptions options = {.compute = DType::f64}) {
    ModelBuilder<Dev> build(Comm<Dev>{});
    build.train_only([](const std::string& name) { return name != "fixed"; });
    ParameterList<Dev> list;
    list.push_back(build.parameter({.name = "weight", .shape = {24, 16}}));
    list.push_back(build.parameter({.name = "bias", .shape = {16}}));
    list.push_back(build.parameter({.name = "filter", .shape = {5, 3, 4}}));
    list.push_back(build.parameter({.name = "mean", .shape = {6}, .buffer = true}));
    list.push_back(build.parameter({.name = "fixed", .shape = {8, 8}}));
    list.push_back(build.parameter({.name = "table", .shape = {40, 9}}));
    return {dev, list, options};
  }

  /// Returns element `at` of a replica's gradient.
  static double drawn(int replica, int step, int parameter, std::size_t at) {
    const RandomStream random{.seed = 3,
                              .series = static_cast<std::uint32_t>(step),
                              .use = static_cast<std::uint32_t>(10 * replica + parameter)};
    return random.normal(at);
  }

  static std::vector<CompressedStep> plain_steps(int count) {
    std::vector<CompressedStep> steps(static_cast<std::size_t>(count));
    for (int step = 0; step < count; ++step) steps[static_cast<std::size_t>(step)].number = step;
    return steps;
  }

  static CompressedRun run(int replicas, const ReducerChoice& choice, DType type,
                           const std::vector<CompressedStep>& steps) {
    const auto ranks = static_cast<std::size_t>(replicas);
    CompressedRun result{std::vector<std::vector<std::vector<Values>>>(ranks),
                         std::vector<std::vector<Values>>(ranks),
                         {}};
    on_ranks_of<Dev>(replicas, [&](Dev& dev, Comm<Dev> plain) {
      const auto me = static_cast<std::size_t>(plain.rank());
      const auto counts = std::make_shared<CallCounts>();
      auto world = counted(dev, plain, counts);
      auto store = make_store(dev, {.compute = type, .seed = 5});
      std::visit(
          [&](const auto& options) {
            auto reducer = make_reducer(dev, store, world, options);
            StepState state;
            for (const auto& step : steps) {
              state.loss_scale = step.scale;
              const auto before = make_step_state<Dev>(dev, state);
              Step<Dev> now;
              now.state = before;
              if constexpr (requires { reducer.begin(now); }) reducer.begin(now);
              result.sums[me].push_back(one_step(dev, store, reducer, step, plain.rank()));
              state.used_loss_scale = step.scale;
              state.decision = step.decision;
            }
            if constexpr (requires { reducer.gradients(); })
              for (const auto& gradient : reducer.gradients())
                result.unsent[me].push_back(widened<Dev>(dev, gradient.unsent));
          },
          choice);
      if (me == 0) result.counts = counts;
    });
    return result;
  }

  /// Checks that sent sums and remaining errors add up to all gradients, and that all replicas have the same bits.
  static void conserves(const ReducerChoice& choice, DType type, double tolerance) {
    constexpr int replicas = 3, steps = 4;
    const auto result = run(replicas, choice, type, plain_steps(steps));
    for (const auto& other : result.sums) CHECK(other == result.sums[0]);
    for (std::size_t matrix = 0; matrix < matrices.size(); ++matrix) {
      const int parameter = matrices[matrix];
      Values got(result.unsent[0][matrix].size(), 0.0), all = got;
      for (std::size_t at = 0; at < got.size(); ++at) {
        for (int step = 0; step < steps; ++step) {
          got[at] +=
              result
                  .sums[0][static_cast<std::size_t>(step)][static_cast<std::size_t>(parameter)][at];
          for (int replica = 0; replica < replicas; ++replica)
            all[at] += drawn(replica, step, parameter, at);
        }
        for (const auto& unsent : result.unsent) got[at] += unsent[matrix][at];
      }
      CHECK(distance(got, all) <= tolerance);
    }
    // Vectors and running statistics are plain sums; frozen parameters have no gradient.
    for (const int parameter : {1, 3}) {
      const auto& sums = result.sums[0].back()[static_cast<std::size_t>(parameter)];
      for (std::size_t at = 0; at < sums.size(); ++at) {
        double all = 0;
        for (int replica = 0; replica < replicas; ++replica)
          all += drawn(replica, steps - 1, parameter, at);
        CHECK(sums[at] == doctest::Approx(all).epsilon(1e-6));
      }
    }
  }

 private:
  template <class R>
  static std::vector<Values> one_step(Dev& dev, ParameterStore<Dev>& store, R& reducer,
                                      const CompressedStep& step, int replica) {
    store.zero_gradients(dev);
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.frozen) continue;
      const auto count = parameter->range.size();
      Values values;
      for (std::int64_t at = 0; at < count; ++at)
        values.push_back(step.scale * drawn(replica, step.number, parameter->index,
                                            static_cast<std::size_t>(at)));
      if (step.spoiled != 0 && replica == 1)
        values[static_cast<std::size_t>(count / 2)] = step.spoiled;
      cast(dev, Tensor<Dev>::from_host(dev, {count}, values), store.gradients(parameter->range));
      reducer.ready(parameter->range);
    }
    reducer.finish();
    std::vector<Values> sums;
    for (const auto& parameter : store.parameters())
      sums.push_back(parameter->spec.frozen ? Values()
                                            : widened<Dev>(dev, store.gradients(parameter->range)));
    return sums;
  }
};

}  // namespace tests
