// On the Cpu, a feed-forward pair has the bits of Linear, GELU and Linear. Also: which of its gradients are deferred.
#include <dhp/cpu.hpp>
#include <tests/support/layer_run.hpp>

namespace {

constexpr std::int64_t columns = 6, inner = 10;
const Shape shape{2, 4, columns};

Sequential<Cpu> pair_of(ModelBuilder<Cpu>& build, bool one) {
  Sequential<Cpu> result;
  if (one)
    result.add("pair",
               FeedForward<Cpu>(build, "first", "second", {.columns = columns, .inner = inner}));
  else
    result.add("first", Linear<Cpu>(build, "first", {.in = columns, .out = inner}))
        .add("gelu", gelu<Cpu>())
        .add("second", Linear<Cpu>(build, "second", {.in = inner, .out = columns}));
  return result;
}

LayerRun run(bool one, const LayerCase& each) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  return run_layer(pair_of(build, one), each);
}

bool any(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return value != 0; });
}

}  // namespace

TEST_CASE("feed forward: names, order, random numbers and costs are those of its parts") {
  ModelBuilder<Cpu> build(Comm<Cpu>{}), other(Comm<Cpu>{});
  check_same_description(pair_of(build, true), pair_of(other, false), shape);
  CHECK(build.next_use() == other.next_use());
}

TEST_CASE("feed forward: results have the bits of its parts") {
  for (const auto compute : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const bool deterministic : {false, true})
      for (const bool recomputed : {false, true}) {
        INFO("compute ", compute, " deterministic ", deterministic, " recomputed ", recomputed);
        const LayerCase each{.shape = shape,
                             .compute = compute,
                             .deterministic = deterministic,
                             .recomputed = recomputed};
        const auto one = run(true, each);
        CHECK(one == run(false, each));
        CHECK(one.dx.size() == 2 * 8 * columns);
        for (const auto& gradient : one.gradients) CHECK(any(gradient));
      }
  const LayerCase eval{.shape = shape, .mode = StepContext::Mode::eval};
  CHECK(run(true, eval) == run(false, eval));
  CHECK(run(true, eval).kept_bytes == 0);
}

TEST_CASE("feed forward: all gradients are deferred, except that of the bias before GELU") {
  for (const bool deterministic : {false, true})
    for (const bool recomputed : {false, true}) {
      LayerCase each{.shape = shape, .deterministic = deterministic, .recomputed = recomputed};
      const auto now = run(true, each);
      each.defer = true;
      const auto late = run(true, each);
      CHECK(late.deferred == 4);  // two weights, two micro-batches
      REQUIRE(late.early.size() == 4);
      CHECK_FALSE(any(late.early[0]));
      CHECK(late.early[1] == late.gradients[1]);
      CHECK_FALSE(any(late.early[2]));
      CHECK_FALSE(any(late.early[3]));
      CHECK(late.gradients == now.gradients);
      CHECK(now.early == now.gradients);
      CHECK(late.dx == now.dx);
    }
}
