// Recompute gives the same bits and keeps only the input.
#include <dhp/cpu.hpp>
#include <tests/support/layer_run.hpp>

namespace {

Sequential<Cpu> block() {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Sequential<Cpu> layers;
  layers.add("wide", Linear<Cpu>(build, "wide", {.in = 6, .out = 24}));
  layers.add("gelu", gelu<Cpu>());
  layers.add("dropout", Dropout<Cpu>(build, 0.5));
  layers.add("narrow", Linear<Cpu>(build, "narrow", {.in = 24, .out = 6}));
  return layers;
}

}  // namespace

TEST_CASE("recompute: gives the same bits with dropout, also nested, and keeps only the input") {
  for (const bool defer : {false, true}) {
    LayerCase each{.shape = {8, 6}, .compute = DType::f32, .defer = defer};
    const auto kept = run_layer(block(), each);
    each.recomputed = true;
    Sequential<Cpu> inside;
    inside.add("inside", recompute<Cpu>(block()));
    for (const auto& again : {run_layer(block(), each), run_layer(std::move(inside), each)}) {
      CHECK(again.y == kept.y);
      CHECK(again.dx == kept.dx);
      CHECK(again.gradients == kept.gradients);
      CHECK(again.deferred == kept.deferred);
      CHECK(again.kept_bytes == 8 * 6 * sizeof(float));
    }
    CHECK(kept.deferred == (defer ? 4 : 0));
    CHECK(kept.kept_bytes > 4 * 8 * 6 * sizeof(float));
  }
}
