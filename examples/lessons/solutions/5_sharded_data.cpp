// Solutions of lesson 5. 1: the bytes that a rank holds in each ZeRO stage. 2: from how many ranks on a model fits.
#include "lesson.hpp"

#include <string>

using dhp::ZeroStage;
using toy::Dev;
constexpr int ranks = 3;
constexpr std::int64_t weights = 49152;  // 128 x 384

/// Returns the bytes of weights, gradients and optimizer state between two steps.
std::size_t held(dhp::Comm<Dev> world, ZeroStage stage) {
  Dev dev;
  const auto batches = toy::noise_batches(dev, 1, 8, 128, 384);
  dhp::TrainingRun run(
      dev, world, {.layout = {.data = ranks}, .store = {.sharding = {.stage = stage}}},
      [](dhp::ModelBuilder<Dev>& build) {
        dhp::Model<Dev> model;
        model.add("layer",
                  dhp::Linear<Dev>(build, "layer", {.in = 128, .out = 384, .bias = false}));
        model.loss = dhp::MeanSquaredError<Dev>();
        return model;
      },
      batches.front());
  return run.store().weight_bytes() + run.store().gradient_bytes() +
         toy::state_bytes(run.optimizer());
}

/// Returns the bytes that each of n ranks holds for one weight: 4 of value, 4 of gradient, 8 of AdamW's two numbers.
/// Each stage shards one thing more. In stage 1 a rank also has its shard of the gradients' sum beside its gradient.
double bytes_of_weight(ZeroStage stage, double n) {
  switch (stage) {
    case ZeroStage::none: return 4 + 4 + 8;
    case ZeroStage::optimizer: return 4 + (4 + 4 / n) + 8 / n;
    case ZeroStage::gradients: return 4 + 4 / n + 8 / n;
    case ZeroStage::weights: return 16 / n;
  }
  return 0;
}

int main() {
  constexpr ZeroStage stages[] = {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients,
                                  ZeroStage::weights};
  // Exercise 1.
  toy::Ledger ledger("49,152 weights, held by one of 3 ranks, bytes");
  for (const auto stage : stages) {
    const auto bytes = toy::on_each_rank(ranks, held, stage)[0];
    const auto line = "stage " + std::to_string(static_cast<int>(stage));
    ledger.line(line.c_str(), bytes, bytes_of_weight(stage, ranks) * weights);
  }
  // Exercise 2.
  std::printf("a model of 1e9 weights, ranks with 6e9 bytes:\n");
  std::vector<int> fits;
  for (const auto stage : stages) {
    int n = 1;
    while (n <= 1024 && bytes_of_weight(stage, n) > 6) ++n;
    fits.push_back(n <= 1024 ? n : 0);
    if (fits.back() > 0) std::printf("  stage %d: from %d ranks on\n", static_cast<int>(stage), n);
    else std::printf("  stage %d: with no number of ranks\n", static_cast<int>(stage));
  }
  return toy::status(ledger.agrees() && fits == std::vector{0, 0, 6, 3});
}
