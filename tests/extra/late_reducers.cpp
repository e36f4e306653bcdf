// Delayed gradients and local steps of replicas, against direct computations in double.
#include <dhp/cpu.hpp>
#include <dhp/extra/verify.hpp>
#include <dhp/nn/batch_norm.hpp>
#include <tests/support/layouts.hpp>
#include <tests/support/regression.hpp>

namespace {

constexpr int replicas = 3;
constexpr int steps = 7;

struct Settings {
  ReducerChoice reducer;
  bool equal = false;  ///< one micro-batch each; else replica r has r + 1
  double rate = 0.03;
  double momentum = 0;
  bool batch_norm = false;
  DType compute = DType::f64;
  bool deterministic = false;
  bool norms_know = true;  ///< Norms is given the replicas
};

double x_of(int step, int replica) { return 0.5 + 0.1 * step + 0.2 * replica; }

MicroBatch<Cpu> sample(Cpu& dev, const Settings& settings, int step, int replica, int k) {
  const auto x = x_of(step, replica);
  Tensor<Cpu> input(dev, settings.compute, {2, 1});
  cast(dev, tensor_of<double>(dev, {x, settings.batch_norm ? 3 * x : x}), input.mut());
  return regression_batch(settings.equal ? replica : replica * (replica + 1) / 2 + k,
                          std::move(input), Tensor<Cpu>::zeros(dev, settings.compute, {2, 1}));
}

using Rank = Trainer<Cpu, DataParallel<Cpu, PipelineParallel<Cpu>>>;

// Trains y = w x for the target 0, from w = 1. Calls body(dev, trainer, store, next, replica) on each replica.
// next(step) returns the step's batches.
template <class Body>
void on_replicas(const Settings& settings, Body body) {
  const RunSettings run{.compute = settings.compute,
                        .deterministic = settings.deterministic,
                        .reducer = settings.reducer,
                        .optimizer = SgdOptions{.momentum = settings.momentum},
                        .lr = settings.rate,
                        .clip = 0,
                        .norms_know = settings.norms_know};
  const auto model_of = [&](ModelBuilder<Cpu>& build) {
    Model<Cpu> model;
    if (settings.batch_norm) model.add("norm", BatchNorm<Cpu>(build, "norm", {.channels = 1}));
    model.add("linear", one_weight(build, "linear"));
    model.loss = MeanSquaredError<Cpu>();
    return model;
  };
  on_each_rank(
      {{.data = replicas}}, run, model_of, [&](Cpu& dev) { return sample(dev, settings, 0, 0, 0); },
      [&](Cpu& dev, Mesh<Cpu>& mesh, auto& stage, Rank& trainer) {
        const int me = mesh.data_index();
        const auto next = [&](int step) {
          StepBatches<Cpu> mine{.batches = {}, .micro_batches = settings.equal ? replicas : 6};
          for (int k = 0; k < (settings.equal ? 1 : me + 1); ++k)
            mine.batches.push_back(sample(dev, settings, step, me, k));
          return mine;
        };
        body(dev, trainer, stage.store(), next, me);
      });
}

double weight_of(ParameterStore<Cpu>& store, std::size_t at = 0) {
  Cpu dev;
  return widened(dev, store.parameters()[at]->value)[0];
}

// Returns the weight on each replica after each step; with `synchronizes`, once more after a synchronize().
std::vector<std::vector<double>> weights(const Settings& settings, bool synchronizes = false) {
  std::vector<std::vector<double>> found(replicas);
  on_replicas(settings, [&](Cpu& dev, Rank& trainer, auto& store, auto next, int me) {
    auto& mine = found[static_cast<std::size_t>(me)];
    for (int step = 0; step < steps; ++step) {
      (void)trainer.step(next(step));
      mine.push_back(weight_of(store));
    }
    if (synchronizes) trainer.replicas()->synchronize(dev);
    if (synchronizes) mine.push_back(weight_of(store));
  });
  return found;
}

double own_gradient(double w, int step, int replica) {
  return 2 * w * x_of(step, replica) * x_of(step, replica);
}
double global_gradient(double w, int step) {
  double sum = 0;
  for (int replica = 0; replica < replicas; ++replica)
    sum += (replica + 1) * own_gradient(w, step, replica);
  return sum / 6;
}
void check_equal(const std::vector<double>& found, const std::vector<double>& expected) {
  CHECK(distance(found, expected) < 1e-14);
}

// Computes each replica's weight after each step directly.
std::vector<std::vector<double>> local(const LocalSgd& options, double rate) {
  std::vector<std::vector<double>> found(replicas);
  std::vector<double> w(replicas, 1);
  double before = 1, m = 0;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t r = 0; r < replicas; ++r)
      w[r] -= rate * own_gradient(w[r], step, static_cast<int>(r));
    if ((step + 1) % options.every == 0) {
      const double moved = before - (w[0] + w[1] + w[2]) / replicas;
      m = options.outer_momentum * m + moved;
      before -= options.outer_learning_rate * (moved + options.outer_momentum * m);
      w.assign(replicas, before);
    }
    for (std::size_t r = 0; r < replicas; ++r) found[r].push_back(w[r]);
  }
  return found;
}

}  // namespace

TEST_CASE("late reducers: a delay of 0 steps gives the plain reducer's bits") {
  for (const auto compute : {DType::f32, DType::f64, DType::bf16}) {
    const auto plain = weights({.reducer = Plain{}, .momentum = 0.9, .compute = compute});
    CHECK(weights({.reducer = Delayed{.steps = 0}, .momentum = 0.9, .compute = compute}) == plain);
  }
}

TEST_CASE("late reducers: a gradient is used after its delay, equally on all replicas") {
  for (const int delay : {1, 2, 3}) {
    CAPTURE(delay);
    std::vector<double> expected{1}, gradients;
    for (int step = 0; step < steps; ++step) {
      gradients.push_back(global_gradient(expected.back(), step));
      const double late = step < delay ? 0 : gradients[static_cast<std::size_t>(step - delay)];
      expected.push_back(expected.back() - 0.03 * late);
    }
    expected.erase(expected.begin());
    const auto found = weights({.reducer = Delayed{.steps = delay}});
    check_equal(found[0], expected);
    CHECK(found[1] == found[0]);
    CHECK(found[2] == found[0]);
    CHECK(weights({.reducer = Delayed{.steps = delay}}) == found);
  }
}

TEST_CASE("late reducers: steps without a gradient are skipped, also after loading weights") {
  on_replicas({.reducer = Delayed{.steps = 2}, .momentum = 0.9},
              [](Cpu& dev, Rank& trainer, auto& store, auto next, int) {
                const auto step = [&](bool waits) {
                  const auto before = weight_of(store);
                  const auto report = trainer.step(next(0));
                  check(report.skipped == waits && !report.spike, "step ", report.step,
                        waits ? " does not wait" : " waits");
                  check((weight_of(store) == before) == waits, "step ", report.step, ": weight");
                };
                for (const bool waits : {true, true, false, false}) step(waits);
                check(trainer.state().device.updates == 2, "updates");
                trainer.replicas()->updated(dev);
                for (const bool waits : {true, true, false}) step(waits);
              });
}

TEST_CASE(
    "late reducers: steps without a gradient have no norm, and all replicas decide them alike") {
  std::vector<std::vector<double>> norms(replicas);
  std::vector<std::string> errors(replicas);
  on_replicas({.reducer = Delayed{.steps = 2}, .equal = true},
              [&](Cpu& dev, Rank& trainer, auto&, auto next, int me) {
                const auto at = static_cast<std::size_t>(me);
                const auto step = [&](double x) {
                  auto mine = next(0);
                  if (me == 1) fill(dev, mine.batches[0].input.mut(), x);
                  norms[at].push_back(trainer.step(mine).gradient_norm);
                };
                errors[at] = message_of([&] {
                  step(1);
                  step(1e80);  // the square of the gradient's norm overflows
                  step(1);
                  step(1);
                });
              });
  for (std::size_t r = 0; r < replicas; ++r) {
    CHECK(has(errors[r], "step 4: the loss is finite but the gradient is not"));
    CHECK(norms[r] == norms[0]);
  }
  REQUIRE(norms[0].size() == 3);
  CHECK(norms[0][0] == 0);
}

TEST_CASE("late reducers: replicas train on their own samples, then average their weights") {
  // DiLoCo's outer step uses Nesterov momentum along the mean change of the replicas.
  const LocalSgd outer{.every = 2, .outer_learning_rate = 0.7, .outer_momentum = 0.9};
  for (const auto& options : {LocalSgd{.every = 1}, LocalSgd{.every = 2}, LocalSgd{.every = 3},
                              LocalSgd{.every = 2, .outer_learning_rate = 0.7}, outer}) {
    CAPTURE(options.every);
    const auto found = weights({.reducer = options});
    const auto expected = local(options, 0.03);
    for (std::size_t r = 0; r < replicas; ++r) check_equal(found[r], expected[r]);
    for (std::size_t step = 0; step < steps; ++step) {
      const bool averaged = (step + 1) % static_cast<std::size_t>(options.every) == 0;
      CHECK((found[0][step] == found[1][step]) == averaged);
      CHECK((found[0][step] == found[2][step]) == averaged);
    }
    CHECK(weights({.reducer = options}) == found);
  }
}

TEST_CASE("late reducers: averaging in every step equals summing gradients for equal shares") {
  for (const double momentum : {0.0, 0.9}) {
    const auto plain = weights({.reducer = Plain{}, .equal = true, .momentum = momentum});
    const auto found =
        weights({.reducer = LocalSgd{.every = 1}, .equal = true, .momentum = momentum});
    for (std::size_t r = 0; r < replicas; ++r) check_equal(found[r], plain[r]);
  }
}

TEST_CASE("late reducers: settling averages differing weights once") {
  const LocalSgd options{.every = 4};
  const auto found = weights({.reducer = options}, true);
  const double mean = (found[0][6] + found[1][6] + found[2][6]) / replicas;
  for (const auto& mine : found) CHECK(std::abs(mine.back() - mean) < 1e-14);
  CHECK(found[0].back() == found[1].back());
  const auto averaged = weights({.reducer = LocalSgd{.every = 7}}, true);
  CHECK(averaged[0][7] == averaged[0][6]);
}

TEST_CASE("late reducers: evaluation uses equal weights, and norms cover all replicas") {
  std::vector<std::vector<double>> found(replicas);
  on_replicas({.reducer = LocalSgd{.every = 4}, .rate = 0.01},
              [&](Cpu&, Rank& trainer, auto& store, auto next, int me) {
                auto& mine = found[static_cast<std::size_t>(me)];
                mine.push_back(trainer.step(next(0)).gradient_norm);
                (void)trainer.evaluate(next(0));
                mine.push_back(weight_of(store));
              });
  CHECK(found[1] == found[0]);
  CHECK(found[2] == found[0]);
  double squares = 0;
  for (int r = 0; r < replicas; ++r) squares += own_gradient(1, 0, r) * own_gradient(1, 0, r);
  CHECK(std::abs(found[0][0] - std::sqrt(squares / replicas)) < 1e-14);
}

TEST_CASE("late reducers: running statistics are those of the step on all replicas") {
  const auto statistics = [](const ReducerChoice& reducer, int count) {
    std::vector<std::vector<double>> found(replicas);
    on_replicas(
        {.reducer = reducer, .rate = 0, .batch_norm = true},
        [&](Cpu& dev, Rank& trainer, auto& store, auto next, int me) {
          for (int step = 0; step < count; ++step) (void)trainer.step(next(count - 1));
          for (const auto& parameter : store.parameters())
            if (parameter->spec.buffer)
              found[static_cast<std::size_t>(me)].push_back(widened(dev, parameter->value)[0]);
        });
    return found;
  };
  const auto plain = statistics(Plain{}, 2);
  REQUIRE(plain[0].size() == 2);
  CHECK(plain[0][0] != plain[0][1]);
  const auto alone = statistics(LocalSgd{.every = 5}, 2);
  for (std::size_t r = 0; r < replicas; ++r) check_equal(alone[r], plain[0]);
  // The first step is skipped, so the third step makes the second update.
  std::vector<std::vector<double>> late(replicas);
  on_replicas({.reducer = Delayed{.steps = 1}, .rate = 0, .batch_norm = true},
              [&](Cpu& dev, Rank& trainer, auto& store, auto next, int me) {
                for (const int data : {5, 1, 1}) (void)trainer.step(next(data));
                for (const auto& parameter : store.parameters())
                  if (parameter->spec.buffer)
                    late[static_cast<std::size_t>(me)].push_back(widened(dev, parameter->value)[0]);
              });
  for (std::size_t r = 0; r < replicas; ++r) check_equal(late[r], plain[0]);
}

TEST_CASE("late reducers: unsupported settings are refused") {
  const auto message = [](const Settings& settings) {
    return message_of([&] { on_replicas(settings, [](auto&&...) {}); });
  };
  CHECK(has(message({.reducer = Delayed{.steps = -1}}), "cannot be delayed by -1 steps"));
  CHECK(has(message({.reducer = Delayed{}, .deterministic = true}), "have no exact sums"));
  CHECK(
      has(message({.reducer = Delayed{}, .compute = DType::f16}), "an earlier step; choose bf16"));
  CHECK(has(message({.reducer = LocalSgd{.every = 0}}), "cannot be averaged every 0 steps"));
  CHECK(has(message({.reducer = LocalSgd{.outer_momentum = 1}}), "momentum 1 is wrong"));
  CHECK(has(message({.reducer = LocalSgd{.outer_learning_rate = 0}}), "learning rate 0"));
  CHECK(has(message({.reducer = LocalSgd{}, .deterministic = true}), "depend on their number"));
  CHECK(has(message({.reducer = LocalSgd{}, .compute = DType::bf16}), "f32 or f64, not of bf16"));
  const auto late = [](const Settings& settings, const auto& call) {
    return message_of([&] {
      on_replicas(settings,
                  [&](Cpu&, Rank& trainer, auto&, auto next, int me) { call(trainer, next, me); });
    });
  };
  for (const auto& reducer : {ReducerChoice(Delayed{}), ReducerChoice(LocalSgd{})}) {
    CHECK(has(late({.reducer = reducer}, [](Rank& t, auto, int) { t.set_update_barrier([] {}); }),
              "a run can go on with other ranks only where all replicas take each step together"));
    CHECK(has(late({.reducer = reducer},
                   [](Rank& t, auto, int) {
                     Cpu dev;
                     Mesh<Cpu> mesh(Comm<Cpu>{}, {});
                     ParameterStore<Cpu> store(dev, {}, {.deterministic = true});
                     detail::StepVerifier<Cpu>(dev, mesh, store, t.replicas(), 1, {});
                   }),
              "a step can be verified only where"));
  }
  Cpu dev;
  ParameterStore<Cpu> sharded(dev, {}, {.sharding = {ZeroStage::optimizer}}, {0, 2});
  for (const auto& reducer : {ReducerChoice(Delayed{}), ReducerChoice(TopK{})})
    CHECK(has(message_of([&] { (void)detail::any_reducer(dev, sharded, Comm<Cpu>(), reducer); }),
              "replicas that shard their state (ZeRO) sum gradients by shards"));
  CHECK(has(message({.reducer = LocalSgd{}, .norms_know = false}),
            "these replicas exchange more than sums of gradients"));
  CHECK(has(late({.reducer = LocalSgd{}},
                 [](Rank& t, auto next, int me) {
                   auto mine = next(0);
                   if (me == 1) mine.batches.clear();
                   (void)t.step(mine);
                 }),
            "a replica without micro-batches has no samples"));
}
