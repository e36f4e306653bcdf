// The residual norm is the composition of Dropout, Residual and LayerNorm: parameters, masks, results, what it keeps.
#include <dhp/cpu.hpp>
#include <tests/support/gradients.hpp>
#include <tests/support/parameters.hpp>
#include <tests/support/residual.hpp>

#include <doctest/doctest.h>

using namespace tests;

namespace {

constexpr std::int64_t columns = 12;
const std::vector<std::int64_t> numbers{90, 91, 92, 7, 8, 9, 10, std::int64_t{1} << 40};

/// As transformers had it from layers of their own, or as one layer.
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

struct Case {
  DType compute = DType::f64;
  double p = 0.4;
  Mode mode = Mode::train;
  std::vector<std::int64_t> numbers{};  ///< of the rows, where the batch gives them
  std::int64_t first_sample = 5;
  bool order_free = false;
  bool again = false;  ///< recomputed
  bool defer = false;  ///< weight gradients wait
};
struct Outcome {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> gradients;
  std::size_t kept_bytes = 0;
};

template <class L>
Outcome run(L layer, const Case& each) {
  Cpu dev;
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters,
                            {.compute = each.compute, .order_free = each.order_free, .seed = 4});
  const auto random = [&](const Shape& shape, std::uint32_t use) {
    return random_of(dev, each.compute, shape, use);
  };
  move_from_start(dev, each.compute, parameters);
  MicroBatch<Cpu> batch;
  batch.samples = 2;
  batch.first_sample = each.first_sample;
  if (!each.numbers.empty())
    batch.side.emplace_back("row_numbers", Tensor<Cpu>::from_host(dev, {8}, each.numbers));
  Tape<Cpu> tape({.mode = each.mode, .seed = 3, .step = 8}, &batch);
  std::vector<Work<Cpu>> deferred;
  if (each.defer) tape.defer_to(&deferred);
  Outcome outcome;
  outcome.y = widened(layer.forward(dev, random({8, columns}, 1), tape));
  outcome.kept_bytes = tape.size_bytes();
  if (each.mode == Mode::eval) return outcome;
  outcome.dx = widened(layer.backward(dev, random({8, columns}, 2), tape));
  CHECK(tape.empty());
  for (auto& work : deferred) work(dev);
  store.finalize_gradients(dev, {0, store.size()});
  for (const auto& parameter : parameters)
    outcome.gradients.push_back(widened(clone(dev, ConstView<Cpu>(parameter->gradient))));
  return outcome;
}

Outcome outcome_of(bool fused, const Case& each) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  auto block = half_block(build, fused, each.p);
  if (each.again) return run(recompute<Cpu>(std::move(block)), each);
  return run(std::move(block), each);
}

void check_alike(const Case& each, double rounding) {
  const auto one = outcome_of(true, each), parts = outcome_of(false, each);
  CHECK(distance(one.y, parts.y) <= rounding);
  CHECK(one.y.size() == 8 * columns);
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
  const auto one = half_block(build, true, 0.1), parts = half_block(other, false, 0.1);
  ParameterList<Cpu> mine, theirs;
  one.parameters(mine);
  parts.parameters(theirs);
  REQUIRE(mine.size() == theirs.size());
  for (std::size_t at = 0; at < mine.size(); ++at) {
    CHECK(mine[at]->spec.name == theirs[at]->spec.name);
    CHECK(mine[at]->use == theirs[at]->use);
    CHECK(mine[at]->index == theirs[at]->index);
    CHECK(mine[at]->spec.decays == theirs[at]->spec.decays);
    CHECK(mine[at]->spec.keep_fp32 == theirs[at]->spec.keep_fp32);
  }
  CHECK(build.next_use() == other.next_use());
  const MicroBatch<Cpu> batch;
  CHECK(one.output_shape({8, columns}, batch) == Shape{8, columns});
  CHECK(one.flops({8, columns}, batch) == parts.flops({8, columns}, batch));
}

TEST_CASE("residual norm: what its parts give, in training") {
  for (const double p : {0.0, 0.4})
    for (const bool packed : {false, true})
      for (const bool order_free : {false, true})
        for (const bool again : {false, true}) {
          CAPTURE(p);
          CAPTURE(packed);
          CAPTURE(order_free);
          CAPTURE(again);
          check_alike({.p = p,
                       .numbers = packed ? numbers : std::vector<std::int64_t>(),
                       .order_free = order_free,
                       .again = again,
                       .defer = again},
                      1e-13);
        }
  check_alike({.compute = DType::f32}, 1e-5);
  check_alike({.compute = DType::f16}, 2e-2);
  check_alike({.compute = DType::bf16, .numbers = numbers}, 1e-1);
}

TEST_CASE("residual norm: evaluation drops nothing and keeps nothing") {
  const Case eval{.mode = Mode::eval};
  const auto one = outcome_of(true, eval);
  CHECK(distance(one.y, outcome_of(false, eval).y) <= 1e-13);
  CHECK(one.kept_bytes == 0);
  CHECK(one.y == outcome_of(true, {.p = 0}).y);
  CHECK(distance(one.y, outcome_of(true, {}).y) > 0.1);
}

TEST_CASE("residual norm: masks go by the rows' global numbers, given or counted") {
  const auto counted = outcome_of(true, {}).y;  // four rows a sample
  CHECK(outcome_of(true, {.numbers = {20, 21, 22, 23, 24, 25, 26, 27}}).y == counted);
  CHECK(distance(outcome_of(true, {.numbers = numbers}).y, counted) > 0.1);
  CHECK(distance(outcome_of(true, {.first_sample = 6}).y, counted) > 0.1);
}

TEST_CASE("residual norm: recompute gives the same bits") {
  for (const auto compute : {DType::f64, DType::bf16}) {
    const auto kept = outcome_of(true, {.compute = compute});
    const auto again = outcome_of(true, {.compute = compute, .again = true});
    CHECK(again.y == kept.y);
    CHECK(again.dx == kept.dx);
    CHECK(again.gradients == kept.gradients);
  }
}

TEST_CASE("residual norm: neither input nor gradient changes under those who hold them") {
  // Its body hands on what it was given, forward and backward.
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

TEST_CASE("residual norm: a probability beyond [0, 1) is refused") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  CHECK(message_of([&] {
          ResidualLayerNorm<Cpu>(build, "norm", {}, {.columns = columns, .dropout = 1});
        }) == "dropout: the probability must be in [0, 1), got 1");
}
