// A feed-forward pair is what Linear, GELU and Linear are, bit by bit on the Cpu; and which of its gradients wait.
#include <dhp/cpu.hpp>
#include <tests/support/parameters.hpp>

#include <doctest/doctest.h>

#include <algorithm>

using namespace dhp;
using namespace tests;

namespace {

constexpr std::int64_t columns = 6, inner = 10;

Sequential<Cpu> pair_of(ModelBuilder<Cpu>& build, bool one) {
  Sequential<Cpu> made;
  if (one)
    made.add("pair",
             parallel_feed_forward(build, "first", "second", {.columns = columns, .inner = inner}));
  else
    made.add("first", column_parallel_linear(build, "first", {.in = columns, .out = inner}))
        .add("gelu", gelu<Cpu>())
        .add("second", RowParallelLinear<Cpu>(build, "second", {.in = inner, .out = columns}));
  return made;
}

struct Case {
  DType compute = DType::f64;
  Mode mode = Mode::train;
  bool order_free = false;
  bool again = false;  ///< recomputed
  bool defer = false;  ///< weight gradients wait
};
struct Outcome {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> early, gradients;  ///< before what waited, and after
  std::size_t kept_bytes = 0, waited = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Two micro-batches: gradients add up.
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
  Outcome outcome;
  std::vector<Work<Cpu>> deferred;
  for (const std::uint32_t micro_batch : {0u, 1u}) {
    Tape<Cpu> tape({.mode = each.mode});
    if (each.defer) tape.defer_to(&deferred);
    const auto x = random({2, 4, columns}, 1 + micro_batch);
    outcome.y = widened(layer.forward(dev, x.share(), tape));
    outcome.kept_bytes = tape.size_bytes();
    if (each.mode == Mode::eval) continue;
    const auto dy = random({2, 4, columns}, 3 + micro_batch);
    outcome.dx = widened(layer.backward(dev, dy.share(), tape));
    CHECK(tape.empty());
  }
  const auto gradients = [&] {
    store.finalize_gradients(dev, {0, store.size()});
    std::vector<std::vector<double>> found;
    for (const auto& parameter : parameters)
      found.push_back(widened(clone(dev, ConstView<Cpu>(parameter->gradient))));
    return found;
  };
  outcome.early = gradients();
  outcome.waited = deferred.size();
  for (auto& work : deferred) work(dev);
  outcome.gradients = gradients();
  return outcome;
}

Outcome outcome_of(bool one, const Case& each) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  if (each.again) return run(recompute<Cpu>(pair_of(build, one)), each);
  return run(pair_of(build, one), each);
}

bool any(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return value != 0; });
}

}  // namespace

TEST_CASE("feed forward: names, order, random numbers and costs are those of its parts") {
  ModelBuilder<Cpu> build(Comm<Cpu>{}), other(Comm<Cpu>{});
  const auto one = pair_of(build, true), parts = pair_of(other, false);
  ParameterList<Cpu> mine, theirs;
  one.parameters(mine);
  parts.parameters(theirs);
  REQUIRE(mine.size() == 4);
  REQUIRE(theirs.size() == 4);
  for (std::size_t at = 0; at < mine.size(); ++at) {
    CHECK(mine[at]->spec.name == theirs[at]->spec.name);
    CHECK(mine[at]->spec.shape == theirs[at]->spec.shape);
    CHECK(mine[at]->spec.decays == theirs[at]->spec.decays);
    CHECK(mine[at]->use == theirs[at]->use);
    CHECK(mine[at]->index == theirs[at]->index);
  }
  CHECK(build.next_use() == other.next_use());
  const MicroBatch<Cpu> batch;
  CHECK(one.output_shape({2, 4, columns}, batch) == Shape{2, 4, columns});
  CHECK(one.flops({8, columns}, batch) == parts.flops({8, columns}, batch));
}

TEST_CASE("feed forward: the bits of its parts") {
  for (const auto compute : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const bool order_free : {false, true})
      for (const bool again : {false, true}) {
        CAPTURE(compute);
        CAPTURE(order_free);
        CAPTURE(again);
        const Case each{.compute = compute, .order_free = order_free, .again = again};
        const auto one = outcome_of(true, each);
        CHECK(one == outcome_of(false, each));
        CHECK(one.dx.size() == 8 * columns);
        for (const auto& gradient : one.gradients) CHECK(any(gradient));
      }
  const Case eval{.mode = Mode::eval};
  const auto one = outcome_of(true, eval);
  CHECK(one == outcome_of(false, eval));
  CHECK(one.kept_bytes == 0);
}

TEST_CASE("feed forward: weights wait, biases come with the gradient of the input") {
  for (const bool order_free : {false, true})
    for (const bool again : {false, true}) {
      const Case each{.order_free = order_free, .again = again, .defer = true};
      const auto late = outcome_of(true, each);
      CHECK(late.waited == 4);  // two weights of two micro-batches
      REQUIRE(late.early.size() == 4);
      CHECK_FALSE(any(late.early[0]));
      CHECK(late.early[1] == late.gradients[1]);
      CHECK_FALSE(any(late.early[2]));
      CHECK(late.early[3] == late.gradients[3]);
      const auto now = outcome_of(true, {.order_free = order_free, .again = again});
      CHECK(late.gradients == now.gradients);
      CHECK(now.early == now.gradients);
      CHECK(late.dx == now.dx);
    }
}
