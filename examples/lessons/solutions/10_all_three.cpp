// Solutions of lesson 10. 1: all layouts of eight ranks, and the bytes they hold and move. 2: shards with H and P.
#include "toy.hpp"

using toy::Dev;
constexpr int micro_batches = 8, steps = 20;

struct Seen {
  double loss = 0;                              // loss of the last step
  double data = 0, tensor = 0, pipeline = 0;    // bytes sent by this rank, per step
  std::size_t held_bytes = 0, state_bytes = 0;  // held_bytes: weights, gradients, state
};

/// Two pairs of matrices [128, 512]. Each rank of a tensor axis of 2 has 32,768 numbers of a matrix: two whole tiles.
dhp::Model<Dev> wide(dhp::ModelBuilder<Dev>& build) {
  const auto linear = [](std::int64_t in, std::int64_t out) {
    return dhp::LinearOptions{
        .in = in, .out = out, .bias = false, .weight_init = dhp::he_normal(in)};
  };
  build.place({{"*out.weight", dhp::Placement::rows}, {"*", dhp::Placement::columns}});
  dhp::Model<Dev> model;
  for (const auto* pair : {"first", "second"}) {
    const std::string name = pair;
    model.add(name, dhp::Linear<Dev>(build, name, linear(128, 512)));
    model.add(name + " out", dhp::Linear<Dev>(build, name + " out", linear(512, 128)));
  }
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

Seen train(dhp::Comm<Dev> plain_world, dhp::MeshShape layout, bool is_wide, dhp::ZeroStage stage) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  Seen seen;
  const int rank = world.rank();
  auto options = toy::options(layout);
  options.store.sharding.stage = stage;
  const auto batches = is_wide ? toy::noise_batches(dev, micro_batches, 16, 128, 128)
                               : toy::batches(dev, micro_batches);
  {
    dhp::TrainingRun run(dev, world, options, is_wide ? wide : toy::network, batches.front());
    counts->reset();
    for (int step = 0; step < steps; ++step) seen.loss = run.step(batches).loss;
    seen.state_bytes = toy::state_bytes(run.optimizer());
    seen.held_bytes = run.store().weight_bytes() + run.store().gradient_bytes() + seen.state_bytes;
  }  // waits for the last all-gather of weights
  // Neighbors on an axis are `apart` ranks apart; the group begins with the axis's first rank.
  const auto sent = [&](int size, int apart) {
    dhp::CallCounts::Group group;
    for (int at = 0; at < size; ++at) group.push_back(rank + (at - rank / apart % size) * apart);
    return size == 1 ? 0 : counts->sent_bytes(group) / steps;
  };
  seen.tensor = sent(layout.tensor, 1);
  seen.data = sent(layout.data, layout.tensor);
  seen.pipeline = sent(layout.pipeline, layout.tensor * layout.data);
  return seen;
}

int main() {
  constexpr auto none = dhp::ZeroStage::none;
  const auto one = toy::on_each_rank(1, train, dhp::MeshShape{}, false, none)[0];
  bool correct = true;

  std::printf("             most bytes held   bytes sent per step, by all ranks together\n");
  std::printf(" D  H  P     by a rank               D          H          P        sum\n");
  for (const int d : {8, 4, 2, 1})
    for (const int h : {8, 4, 2, 1}) {
      if (8 % (d * h) != 0) continue;
      const dhp::MeshShape layout{.data = d, .tensor = h, .pipeline = 8 / d / h};
      std::printf("%2d %2d %2d", layout.data, layout.tensor, layout.pipeline);
      try {
        const auto ranks = toy::on_each_rank(8, train, layout, false, none);
        std::size_t held = 0;
        double data = 0, tensor = 0, pipeline = 0;
        for (const auto& rank : ranks) {
          held = std::max(held, rank.held_bytes);
          data += rank.data;
          tensor += rank.tensor;
          pipeline += rank.pipeline;
        }
        std::printf("     %15zu   %10.0f %10.0f %10.0f %10.0f\n", held, data, tensor, pipeline,
                    data + tensor + pipeline);
        correct = correct && std::abs(ranks[0].loss - one.loss) < 1e-4;
      } catch (const dhp::Error& error) {
        const auto& sentence = error.sentence();  // such as "rank 4: ..."
        std::printf("     refused: %s\n", sentence.substr(sentence.find(": ") + 2).c_str());
        correct = correct && layout.pipeline == 8;
      }
    }

  // 2: two replicas shard the optimizer state of each rank, in whole tiles of 16,384 numbers.
  constexpr dhp::MeshShape two_each{.data = 2, .tensor = 2, .pipeline = 2};
  const auto whole = toy::on_each_rank(8, train, two_each, true, none);
  const auto shards = toy::on_each_rank(8, train, two_each, true, dhp::ZeroStage::optimizer);
  std::printf("\n2 x 2 x 2: loss %.8f, with shards %.8f\n", whole[0].loss, shards[0].loss);
  correct = correct && std::abs(whole[0].loss - shards[0].loss) < 1e-6;
  constexpr std::int64_t numbers = 4 * 128 * 512 / 2 / 2;  // numbers of one rank
  constexpr std::int64_t others = 8 + 32 * (micro_batches + 1);
  toy::Ledger ledger;
  ledger.line("AdamW's state: two numbers of 4 bytes", whole[0].state_bytes, 2 * 4 * numbers);
  ledger.line("AdamW's state, with shards: half", shards[0].state_bytes, 2 * 4 * numbers / 2);
  ledger.line("data axis: sent per step", whole[0].data, 4 * numbers + others);
  ledger.line("data axis, with shards: and a norm for each tile", shards[0].data,
              4 * numbers + others + 8 * numbers / 16384);
  ledger.line("tensor axis, with shards: as before", shards[0].tensor, whole[0].tensor);
  ledger.line("pipeline axis, with shards: as before", shards[0].pipeline, whole[0].pipeline);
  return toy::status(correct && ledger.agrees());
}
