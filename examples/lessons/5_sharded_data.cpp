// Lesson 5: D with shards (ZeRO stage 1: Rajbhandari et al. 2020). In lesson 4 every replica keeps the optimizer state
// of all weights, and all do the same update. Here each replica updates only its *shard*, one n-th of the weights. A
// *reduce-scatter* gives it the sum of that part of the gradients, and an *all-gather* brings every replica the new
// weights. Both together move as many bytes as one all-reduce, and the state is n times smaller. First by hand, then by
// dhp.
#include "lesson.hpp"

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr int ranks = 3;
constexpr std::int64_t inputs = 128, outputs = 384;
constexpr std::int64_t weights_count = inputs * outputs;
constexpr std::int64_t shard = weights_count / ranks;
constexpr int steps = 4;

struct Seen {
  std::vector<double> result{};  // weights by hand, or losses of dhp's run
  std::size_t state_bytes = 0;   // bytes of the optimizer's state
  double sent_bytes = 0;         // bytes sent in all steps
};

/// SGD with momentum, m = 0.9 m + g, w = w - 0.1 m, on all elements of the views.
void update(Dev& dev, dhp::View<Dev> momentum, dhp::ConstView<Dev> gradient,
            dhp::View<Dev> weights) {
  scale(dev, 0.9, momentum);
  axpy(dev, 1, gradient, momentum);
  axpy(dev, -0.1, momentum, weights);
}

Seen by_hand(dhp::Comm<Dev> plain_world, bool sharded) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const int rank = world.rank();
  auto weights = Tensor<Dev>::zeros(dev, DType::f32, {weights_count});
  auto momentum = Tensor<Dev>::zeros(dev, DType::f32, {sharded ? shard : weights_count});
  for (int step = 0; step < steps; ++step) {
    auto gradient =
        toy::noise(dev, {weights_count}, rank * steps + step);  // gradient of this rank's samples
    if (sharded) {
      Tensor<Dev> summed(dev, DType::f32, {shard});
      const auto mine = weights.mut().slice(rank * shard, (rank + 1) * shard);
      world.reduce_scatter(dev, gradient.view(), summed.mut()).wait();
      update(dev, momentum.mut(), summed.view(), mine);
      world.all_gather(dev, mine, weights.mut()).wait();
    } else {
      world.all_reduce(dev, gradient.mut()).wait();
      update(dev, momentum.mut(), gradient.view(), weights.mut());
    }
  }
  const auto values = weights.to_host<float>(dev);
  return {{values.begin(), values.end()},
          momentum.size_bytes(),
          counts->sent_bytes(toy::all_ranks(ranks))};
}

// Trains by dhp, with shards as an option of the store: one linear layer, AdamW (two numbers of state for a weight).
Seen by_dhp(dhp::Comm<Dev> plain_world, dhp::ZeroStage stage) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const auto batches = toy::noise_batches(dev, ranks, 8, inputs, outputs);
  const auto network = [](dhp::ModelBuilder<Dev>& build) {
    dhp::Model<Dev> model;
    model.add("layer",
              dhp::Linear<Dev>(build, "layer", {.in = inputs, .out = outputs, .bias = false}));
    model.loss = dhp::MeanSquaredError<Dev>();
    return model;
  };
  Seen seen;
  {
    dhp::TrainingRun run(dev, world,
                         {.layout = {.data = ranks}, .store = {.sharding = {.stage = stage}}},
                         network, batches.front());
    counts->reset();
    for (int step = 0; step < steps; ++step) seen.result.push_back(run.step(batches).loss);
    seen.state_bytes = toy::state_bytes(run.optimizer());
  }  // waits for the last all-gather
  seen.sent_bytes = counts->sent_bytes(toy::all_ranks(ranks));
  return seen;
}

int main() {
  const auto whole = toy::on_each_rank(ranks, by_hand, false);
  const auto shards = toy::on_each_rank(ranks, by_hand, true);
  const auto plain = toy::on_each_rank(ranks, by_dhp, dhp::ZeroStage::none);
  const auto zero = toy::on_each_rank(ranks, by_dhp, dhp::ZeroStage::optimizer);
  bool same_weights = true;
  for (const auto& rank : shards) same_weights = same_weights && rank.result == whole[0].result;
  const bool same_losses = zero[0].result == plain[0].result;
  std::printf("by hand: with shards the weights are %s\n",
              same_weights ? "the same, on all ranks, bit for bit" : "different");
  std::printf("by dhp: loss %.6f -> %.6f, with shards %s\n\n", plain[0].result.front(),
              plain[0].result.back(), same_losses ? "the same, bit for bit" : "different");

  // For S bytes, an all-reduce sends 2 (n - 1) / n S from each rank. The reduce-scatter and the all-gather send half of
  // that each. dhp also sums the count of targets, 8 bytes, and losses, 32 bytes for each micro-batch and one more row.
  // With shards it also sums the squared norm of the gradient, 8 bytes for each tile of 16,384.
  const double gradient = 4.0 * weights_count;
  const double all_reduced = steps * 2.0 * (ranks - 1) / ranks;
  const double numbers = 8 + 32 * (ranks + 1);
  const double tiles = 8.0 * weights_count / 16384;
  toy::Ledger ledger;
  ledger.line("by hand, all-reduce: sent in 4 steps", whole[0].sent_bytes, all_reduced * gradient);
  ledger.line("by hand, reduce-scatter and all-gather: sent", shards[0].sent_bytes,
              all_reduced * gradient);
  ledger.line("by hand: momentum, whole", whole[0].state_bytes, gradient);
  ledger.line("by hand: momentum, a shard", shards[0].state_bytes, gradient / ranks);
  ledger.line("by dhp: sent in 4 steps", plain[0].sent_bytes, all_reduced * (gradient + numbers));
  ledger.line("by dhp, with shards: sent", zero[0].sent_bytes,
              all_reduced * (gradient + numbers + tiles));
  ledger.line("by dhp: AdamW's state", plain[0].state_bytes, 2 * gradient);
  ledger.line("by dhp, with shards: AdamW's state", zero[0].state_bytes, 2 * gradient / ranks);
  return toy::status(same_weights && same_losses && ledger.agrees());
}
