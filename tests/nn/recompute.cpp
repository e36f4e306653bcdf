// Recompute gives the same bits and keeps no more than the input.
#include <dhp/cpu.hpp>
#include <dhp/nn/activation.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/sequential.hpp>
#include <tests/support/gradients.hpp>

#include <doctest/doctest.h>

using namespace tests;

namespace {

Sequential<Cpu> block(ModelBuilder<Cpu>& build) {
  Sequential<Cpu> layers;
  layers.add("wide", Linear<Cpu>(build, "wide", {.in = 6, .out = 24}));
  layers.add("gelu", gelu<Cpu>());
  layers.add("dropout", Dropout<Cpu>(build, 0.5));
  layers.add("narrow", Linear<Cpu>(build, "narrow", {.in = 24, .out = 6}));
  return layers;
}

struct Outcome {
  std::vector<double> y, dx, gradients;
  std::size_t kept_bytes = 0;
};

/// defer: weight gradients wait until the backward pass is over, as zero-bubble schedules have it.
template <class L>
Outcome run(Cpu& dev, L layer, bool defer) {
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {.seed = 4});
  const auto batch = token_batch(dev, 2, 4, 9);
  Tape<Cpu> tape({.seed = 3, .step = 8}, &batch);
  std::vector<Work<Cpu>> deferred;
  Outcome outcome;
  const auto y = layer.forward(dev, random_tensor<float>(dev, {8, 6}, 1), tape);
  outcome.kept_bytes = tape.size_bytes();
  outcome.y = widened(y);
  if (defer) tape.defer_to(&deferred);
  outcome.dx = widened(layer.backward(dev, random_tensor<float>(dev, {8, 6}, 2), tape));
  CHECK(tape.empty());
  CHECK(deferred.empty() == !defer);
  for (auto& work : deferred) work(dev);
  for (const auto& parameter : store.parameters()) {
    const auto part = widened(clone(dev, ConstView<Cpu>(parameter->gradient)));
    outcome.gradients.insert(outcome.gradients.end(), part.begin(), part.end());
  }
  return outcome;
}

}  // namespace

TEST_CASE("recompute: the same bits, dropout included, and only the input is kept") {
  Cpu dev;
  for (const bool defer : {false, true}) {
    ModelBuilder<Cpu> build(Comm<Cpu>{}), again(Comm<Cpu>{});
    const auto kept = run(dev, block(build), defer);
    const auto recomputed = run(dev, recompute<Cpu>(block(again)), defer);
    CHECK(recomputed.y == kept.y);
    CHECK(recomputed.dx == kept.dx);
    CHECK(recomputed.gradients == kept.gradients);
    CHECK(recomputed.kept_bytes == 8 * 6 * sizeof(float));
    CHECK(kept.kept_bytes > 4 * recomputed.kept_bytes);
  }
}

TEST_CASE("recompute inside recompute is recompute") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{}), again(Comm<Cpu>{});
  const auto once = run(dev, recompute<Cpu>(block(build)), false);
  const auto twice = run(dev, recompute<Cpu>(recompute<Cpu>(block(again))), false);
  CHECK(twice.dx == once.dx);
  CHECK(twice.gradients == once.gradients);
}
