// Compressing reducers, against direct computations in double.
#include <dhp/cpu.hpp>
#include <tests/extra/compressed_reducer.hpp>
#include <tests/parallel/layouts.hpp>
#include <tests/support/regression.hpp>

namespace {

using Cases = CompressedCases<Cpu>;

struct Matrix {
  std::size_t rows, columns;
};
constexpr Matrix shapes[] = {{24, 16}, {5, 12}, {40, 9}};

// Each takes gradients plus error memories in `all`, leaves the new errors in `all`, and returns the sum. The last
// argument is PowerSGD's Q.
Values plainly(SixteenBit, Matrix, std::vector<Values>& all, Values&) {
  Values sum(all[0].size(), 0.0);
  for (auto& mine : all)
    for (std::size_t at = 0; at < sum.size(); ++at) {
      const auto sent = static_cast<double>(static_cast<float>(static_cast<bf16>(mine[at])));
      sum[at] += sent;
      mine[at] -= sent;
    }
  for (auto& each : sum) each = static_cast<double>(static_cast<float>(static_cast<bf16>(each)));
  return sum;
}
Values plainly(const TopK& options, Matrix, std::vector<Values>& all, Values&) {
  Values sum(all[0].size(), 0.0);
  const auto sent = std::ceil(options.share * static_cast<double>(sum.size()));
  for (auto& mine : all) {
    std::vector<std::size_t> order(sum.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return std::abs(mine[a]) > std::abs(mine[b]); });
    order.resize(static_cast<std::size_t>(sent));
    for (const auto at : order) sum[at] += std::exchange(mine[at], 0.0);
  }
  return sum;
}
Values plainly(OneBit, Matrix, std::vector<Values>& all, Values&) {
  Values sum(all[0].size(), 0.0);
  for (auto& mine : all) {
    double level = 0;
    for (const double each : mine) level += std::abs(each) / static_cast<double>(mine.size());
    for (std::size_t at = 0; at < sum.size(); ++at) {
      const double sent = mine[at] >= 0 ? level : -level;
      sum[at] += sent;
      mine[at] -= sent;
    }
  }
  return sum;
}
Values plainly(const PowerSgd& options, Matrix matrix, std::vector<Values>& all, Values& q) {
  const auto [rows, columns] = matrix;
  const auto rank = static_cast<std::size_t>(options.rank);
  const auto replicas = static_cast<double>(all.size());
  Values total(rows * columns, 0.0), p(rows * rank, 0.0);
  for (const auto& mine : all)
    for (std::size_t at = 0; at < total.size(); ++at) total[at] += mine[at];
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < rank; ++k)
      for (std::size_t c = 0; c < columns; ++c)
        p[r * rank + k] += total[r * columns + c] * q[c * rank + k];
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t other = 0; other < k; ++other) {
      double along = 0;
      for (std::size_t r = 0; r < rows; ++r) along += p[r * rank + k] * p[r * rank + other];
      for (std::size_t r = 0; r < rows; ++r) p[r * rank + k] -= along * p[r * rank + other];
    }
    double squares = 0;
    for (std::size_t r = 0; r < rows; ++r) squares += p[r * rank + k] * p[r * rank + k];
    for (std::size_t r = 0; r < rows; ++r) p[r * rank + k] /= std::sqrt(squares);
  }
  std::fill(q.begin(), q.end(), 0.0);
  Values sum(total.size(), 0.0);
  for (std::size_t c = 0; c < columns; ++c)
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::size_t r = 0; r < rows; ++r)
        q[c * rank + k] += total[r * columns + c] * p[r * rank + k];
      for (std::size_t r = 0; r < rows; ++r)
        sum[r * columns + c] += p[r * rank + k] * q[c * rank + k];
    }
  for (auto& mine : all)
    for (std::size_t at = 0; at < sum.size(); ++at) mine[at] -= sum[at] / replicas;
  return sum;
}

}  // namespace

TEST_CASE_TEMPLATE("compressing reducers: sums match the formula of each reducer", Options,
                   SixteenBit, TopK, PowerSgd, OneBit) {
  Options options;
  if constexpr (requires { options.share; }) options.share = 0.1;
  if constexpr (requires { options.rank; }) options.rank = 2;
  constexpr int replicas = 3, steps = 4;
  const auto found = Cases::run(replicas, options, DType::f64, Cases::plain_steps(steps));
  Cpu dev;
  const auto store = Cases::make_store(dev);
  for (std::size_t matrix = 0; matrix < 3; ++matrix) {
    const int parameter = Cases::matrices[matrix];
    const auto count = shapes[matrix].rows * shapes[matrix].columns;
    const RandomStream random{.seed = mix(5),
                              .use = store.parameters()[static_cast<std::size_t>(parameter)]->use};
    Values q;
    for (std::size_t at = 0; at < shapes[matrix].columns * 2; ++at) q.push_back(random.normal(at));
    std::vector<Values> all(replicas, Values(count, 0.0));
    for (int step = 0; step < steps; ++step) {
      for (int replica = 0; replica < replicas; ++replica)
        for (std::size_t at = 0; at < count; ++at)
          all[static_cast<std::size_t>(replica)][at] += Cases::drawn(replica, step, parameter, at);
      const auto expected = plainly(options, shapes[matrix], all, q);
      CHECK(distance(
                found.sums[0][static_cast<std::size_t>(step)][static_cast<std::size_t>(parameter)],
                expected) <= 1e-10);
    }
    for (std::size_t replica = 0; replica < replicas; ++replica)
      CHECK(distance(found.unsent[replica][matrix], all[replica]) <= 1e-10);
  }
}

TEST_CASE("compressing reducers: sent and remembered parts sum to the gradient on all replicas") {
  for (const ReducerChoice& choice :
       {ReducerChoice(SixteenBit{}), ReducerChoice(TopK{.share = 0.05}),
        ReducerChoice(PowerSgd{.rank = 3}), ReducerChoice(OneBit{})}) {
    CAPTURE(choice.index());
    Cases::conserves(choice, DType::f32, choice.index() == 2 ? 0.05 : 1e-5);
    Cases::conserves(choice, DType::f64, choice.index() == 2 ? 0.05 : 1e-12);
  }
}

TEST_CASE("compressing reducers: a skipped step keeps the error memory, in the next loss scale") {
  for (const ReducerChoice& choice :
       {ReducerChoice(SixteenBit{}), ReducerChoice(TopK{.share = 0.05}),
        ReducerChoice(PowerSgd{.rank = 2}), ReducerChoice(OneBit{})}) {
    CAPTURE(choice.index());
    const auto reference =
        Cases::run(2, choice, DType::f32, {{.scale = 8, .number = 0}, {.scale = 4, .number = 1}});
    const auto unscaled = Cases::run(2, choice, DType::f32, Cases::plain_steps(2));
    for (const std::size_t parameter : {0, 2, 5})
      for (std::size_t at = 0; at < reference.sums[0][1][parameter].size(); ++at)
        CHECK(reference.sums[0][1][parameter][at] == 4 * unscaled.sums[0][1][parameter][at]);
    for (const double spoiled : {HUGE_VAL, std::nan("")}) {
      const auto skipping =
          Cases::run(2, choice, DType::f32,
                     {{.scale = 8, .number = 0},
                      {.scale = 8, .decision = StepDecision::skip, .spoiled = spoiled, .number = 7},
                      {.scale = 4, .number = 1}});
      for (const int parameter : {0, 2, 5}) {
        const auto& bad = skipping.sums[0][1][static_cast<std::size_t>(parameter)];
        CHECK_FALSE(std::isfinite(std::accumulate(bad.begin(), bad.end(), 0.0)));
      }
      CHECK(skipping.sums[0][2] == reference.sums[0][1]);
      CHECK(skipping.unsent == reference.unsent);
    }
  }
}

TEST_CASE("compressing reducers: a run resumes after a step that was not finite") {
  for (const auto& reducer : {ReducerChoice(SixteenBit{}), ReducerChoice(OneBit{})}) {
    std::string failed, resumed;
    const auto batch = [](Cpu& dev, int replica, double x) {
      return regression_batch(replica, tensor_of<double>(dev, {x}).reshape({1, 1}),
                              Tensor<Cpu>::zeros(dev, DType::f64, {1, 1}));
    };
    const auto model_of = [](ModelBuilder<Cpu>& build) {
      Model<Cpu> model;
      model.add("linear", one_weight(build, "linear"));
      model.loss = MeanSquaredError<Cpu>();
      return model;
    };
    on_each_rank(
        {{.data = 2}}, {.reducer = reducer}, model_of, [&](Cpu& dev) { return batch(dev, 0, 1); },
        [&](Cpu& dev, Mesh<Cpu>& mesh, auto&, auto& trainer) {
          const auto step = [&](double x) {
            StepBatches<Cpu> mine{.batches = {}, .micro_batches = 2};
            mine.batches.push_back(batch(dev, mesh.data_index(), x));
            return message_of([&] { (void)trainer.step(mine); });
          };
          (void)step(1);
          const auto good = trainer.state();
          const auto bad = step(std::numeric_limits<double>::infinity());
          trainer.resume_after(good);
          const auto after = step(1);
          if (mesh.data_index() == 0) failed = bad, resumed = after;
        });
    CHECK(has(failed, "step 2: the loss is not finite"));
    CHECK(resumed == "no error");
  }
}

TEST_CASE("compressing reducers: the bytes of a step match the formula") {
  constexpr std::int64_t steps = 3,
                         vectors = 16 + 6;  // of the bias and the statistic
  const CallCounts::Group all{0, 1, 2};
  const auto run = [&](const ReducerChoice& choice) {
    return Cases::run(3, choice, DType::f32, Cases::plain_steps(steps)).counts;
  };
  const auto bytes = [&](const ReducerChoice& choice, CallKind kind) {
    const auto counted = run(choice)->of(all, kind).bytes;
    CHECK(counted % steps == 0);
    return counted / steps;
  };
  constexpr std::int64_t elements = 24 * 16 + 5 * 12 + 40 * 9;
  CHECK(bytes(SixteenBit{}, CallKind::all_reduce) == 4 * vectors + 2 * elements);
  CHECK(bytes(TopK{.share = 0.1}, CallKind::all_reduce) == 4 * vectors);
  CHECK(bytes(TopK{.share = 0.1}, CallKind::all_gather) == (39 + 6 + 36) * (4 + 4));
  CHECK(bytes(PowerSgd{.rank = 2}, CallKind::all_reduce) ==
        4 * vectors + 4 * 2 * (24 + 16 + 5 + 12 + 40 + 9));
  CHECK(bytes(OneBit{}, CallKind::all_reduce) == 4 * vectors);
  CHECK(bytes(OneBit{}, CallKind::all_gather) == 24 * 16 / 8 + 8 + 40 * 9 / 8 + 3 * 8);
  // At rank 4, P and Q are no smaller than the filter, so the filter is summed uncompressed.
  CHECK(bytes(PowerSgd{.rank = 4}, CallKind::all_reduce) ==
        4 * (vectors + 60) + 4 * 4 * (24 + 16 + 40 + 9));
}

TEST_CASE("compressing reducers: one replica keeps its gradients and sends nothing") {
  for (const ReducerChoice& choice : {ReducerChoice(SixteenBit{}), ReducerChoice(TopK{}),
                                      ReducerChoice(PowerSgd{}), ReducerChoice(OneBit{})})
    CHECK(Cases::run(1, choice, DType::f32, Cases::plain_steps(2)).sums ==
          Cases::run(1, Plain{}, DType::f32, Cases::plain_steps(2)).sums);
}

TEST_CASE("compressing reducers: exact sums and wrong options are refused") {
  Cpu dev;
  auto exact = Cases::make_store(dev, {.deterministic = true});
  CHECK(message_of([&] { (void)make_reducer(dev, exact, Comm<Cpu>(), TopK{}); }) ==
        "exact sums have no compressed form: a reducer that compresses needs sums in floating "
        "point");
  auto store = Cases::make_store(dev);
  CHECK(message_of([&] { (void)make_reducer(dev, store, Comm<Cpu>(), TopK{.share = 0}); }) ==
        "top-k sends a share between 0 and 1, not 0");
  CHECK(message_of([&] { (void)make_reducer(dev, store, Comm<Cpu>(), PowerSgd{.rank = 0}); }) ==
        "PowerSGD needs a rank of 1 or more, not 0");
}

TEST_CASE("compressing reducers: top-k of everything equals the plain sum in every layout") {
  const auto run = [](const Layout& layout, const ReducerChoice& reducer) {
    return run_layout(
        layout, {.reducer = reducer, .steps = 3},
        [](ModelBuilder<Cpu>& build) { return everything(build, {.blocks = 2}); },
        [](Cpu& dev, int step, std::int64_t k) { return everything_batch(dev, step, k); });
  };
  const auto serial = run({}, Plain{});
  for (const MeshShape& mesh :
       {MeshShape{.data = 3}, MeshShape{.data = 2, .tensor = 2, .pipeline = 2}}) {
    CAPTURE(to_text(mesh));
    check_close(serial, run({.mesh = mesh}, TopK{.share = 1}), 1e-9);
  }
}
