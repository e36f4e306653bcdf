// ResidualLayerNorm equals Dropout, Residual and LayerNorm: in parameters, masks, results and memory.
#include <dhp/cpu.hpp>
#include <tests/support/layer_run.hpp>

namespace {

constexpr std::int64_t columns = 12;
const std::vector<std::int64_t> numbers{90, 91, 92, 7, 8, 9, 10, std::int64_t{1} << 40};

/// Half of a block, as separate layers or as one layer.
Sequential<Cpu> half_block(ModelBuilder<Cpu>& build, bool fused, double p) {
  Sequential<Cpu> body, block;
  body.add("in", Linear<Cpu>(build, "in", {.in = columns, .out = 20}))
      .add("gelu", gelu<Cpu>())
      .add("out", Linear<Cpu>(build, "out", {.in = 20, .out = columns}));
  if (fused) {
    block.add("norm", ResidualLayerNorm<Cpu>(build, "norm", std::move(body),
                                             {.columns = columns, .dropout = p, .epsilon = 1e-5}));
  } else {
    body.add("dropout", Dropout<Cpu>(build, p));
    block.add("residual", Residual<Cpu>(std::move(body)));
    block.add("norm", LayerNorm<Cpu>(build, "norm", columns, 1e-5));
  }
  return block;
}

const LayerCase standard{.shape = {8, columns}};

LayerRun run(bool fused, const LayerCase& each = standard, double p = 0.4) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  return run_layer(half_block(build, fused, p), each);
}

void check_alike(const LayerCase& each, double rounding, double p = 0.4) {
  const auto one = run(true, each, p), parts = run(false, each, p);
  CHECK(distance(one.y, parts.y) <= rounding);
  CHECK(one.y.size() == 2 * 8 * columns);
  CHECK(one.dx.size() == parts.dx.size());
  CHECK(distance(one.dx, parts.dx) <= rounding);
  REQUIRE(one.gradients.size() == parts.gradients.size());
  for (std::size_t at = 0; at < one.gradients.size(); ++at)
    CHECK(distance(one.gradients[at], parts.gradients[at], 10) <= rounding);
  CHECK(one.kept_bytes == parts.kept_bytes);
}

}  // namespace

TEST_CASE("residual norm: names, order, random numbers and costs are those of its parts") {
  ModelBuilder<Cpu> build(Comm<Cpu>{}), other(Comm<Cpu>{});
  check_same_description(half_block(build, true, 0.1), half_block(other, false, 0.1), {8, columns});
  CHECK(build.next_use() == other.next_use());
}

TEST_CASE("residual norm: training results match its parts") {
  for (const double p : {0.0, 0.4})
    for (const bool packed : {false, true})
      for (const bool deterministic : {false, true})
        for (const bool recomputed : {false, true}) {
          INFO("p ", p, " packed ", packed, " deterministic ", deterministic);
          CAPTURE(recomputed);
          check_alike({.shape = {8, columns},
                       .row_numbers = packed ? numbers : std::vector<std::int64_t>(),
                       .deterministic = deterministic,
                       .recomputed = recomputed,
                       .defer = recomputed},
                      1e-13, p);
        }
  check_alike({.shape = {8, columns}, .compute = DType::f32}, 1e-5);
  check_alike({.shape = {8, columns}, .compute = DType::f16}, 2e-2);
  check_alike({.shape = {8, columns}, .compute = DType::bf16, .row_numbers = numbers}, 1e-1);
}

TEST_CASE("residual norm: evaluation drops nothing and keeps nothing") {
  auto eval = standard;
  eval.mode = StepContext::Mode::eval;
  const auto one = run(true, eval);
  CHECK(distance(one.y, run(false, eval).y) <= 1e-13);
  CHECK(one.kept_bytes == 0);
  CHECK(one.y == run(true, standard, 0).y);
  CHECK(distance(one.y, run(true).y) > 0.1);
}

TEST_CASE("residual norm: masks follow the global row numbers, given or counted") {
  const auto counted = run(true).y;  // a sample has four rows
  auto each = standard;
  each.row_numbers = {20, 21, 22, 23, 24, 25, 26, 27};
  CHECK(run(true, each).y == counted);
  each.row_numbers = numbers;
  CHECK(distance(run(true, each).y, counted) > 0.1);
  CHECK(distance(run(true, {.shape = {8, columns}, .first_sample = 6}).y, counted) > 0.1);
}

TEST_CASE("residual norm: shared inputs and gradients are not changed") {
  // An empty body returns its argument, forward and backward.
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  for (const double p : {0.0, 0.5}) {
    ResidualLayerNorm<Cpu> layer(build, "norm", {}, {.columns = columns, .dropout = p});
    ParameterList<Cpu> parameters;
    layer.parameters(parameters);
    ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64});
    MicroBatch<Cpu> batch;
    batch.samples = 4;
    Tape<Cpu> tape({}, &batch);
    const auto x = random_tensor<double>(dev, {4, columns}, 1);
    const auto dy = random_tensor<double>(dev, {4, columns}, 2);
    const auto y = layer.forward(dev, x.share(), tape);
    CHECK(widened(y) != widened(x));
    const auto dx = layer.backward(dev, dy.share(), tape);
    CHECK(widened(dx) != widened(dy));
    CHECK(widened(x) == widened(random_tensor<double>(dev, {4, columns}, 1)));
    CHECK(widened(dy) == widened(random_tensor<double>(dev, {4, columns}, 2)));
  }
}

TEST_CASE("residual norm: a probability outside [0, 1) is refused") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  CHECK(message_of([&] {
          ResidualLayerNorm<Cpu>(build, "norm", {}, {.columns = columns, .dropout = 1});
        }) == "dropout: the probability must be in [0, 1), got 1");
}
