// Lesson 4: D with dhp's wrappers. In lesson 3 the network waits for the whole backward pass, then the processor waits
// for the network. A *bucket* is a range of gradients with its own all-reduce. The backward pass goes from the last
// layer to the first, so the bucket of the last layers is summed while earlier layers compute. The bytes stay the same.
#include "lesson.hpp"
#include "toy.hpp"

#include <cmath>

using toy::Dev;
constexpr int micro_batches = 12;  // micro-batches of all ranks; each rank gets whole ones
constexpr int steps = 30;
using Reducer = std::variant<dhp::Plain, dhp::Bucketed>;

struct Seen {
  std::vector<double> losses{};
  dhp::CallCount all_reduces{};  // calls of one step
  double sent_bytes = 0;
  std::int64_t parameters = 0;  // number of parameters, with the padding that aligns each
};

Seen train(dhp::Comm<Dev> plain_world, const Reducer& reducer, bool deterministic) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const int replicas = plain_world.size();
  dhp::Mesh<Dev> mesh(world, {.data = replicas});
  dhp::ModelBuilder<Dev> build(mesh);
  const auto all = toy::batches(dev, micro_batches);
  // Every rank has the whole model: a pipeline of one stage.
  dhp::PipelineParallel<Dev> stage(dev, toy::network(build), mesh, {}, all.front(),
                                   {.deterministic = deterministic});
  // The wrapper sums the gradients over the replicas.
  dhp::DataParallel model(dev, stage, mesh.data(), reducer);
  dhp::Norms<Dev> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
  dhp::AdamW<Dev> optimizer(dev, stage.store(), {.weight_decay = 0});
  dhp::Trainer trainer(dev, model, mesh, optimizer, norms, {.learning_rate = {.peak = 0.01}});
  const auto mine = dhp::assigned<Dev>(all, mesh.data().rank(), replicas);
  Seen seen;
  for (int step = 0; step < steps; ++step) {
    counts->reset();
    seen.losses.push_back(trainer.step(mine).loss);
  }
  const auto group = toy::all_ranks(replicas);
  seen.all_reduces = counts->of(group, dhp::CallKind::all_reduce);
  seen.sent_bytes = counts->sent_bytes(group);
  seen.parameters = stage.store().size();
  return seen;
}

int main() {
  const auto train_on = [](int ranks, const Reducer& reducer, bool deterministic = false) {
    return toy::on_each_rank(ranks, train, reducer, deterministic)[0];
  };
  const auto one = train_on(1, dhp::Plain{});
  const auto plain = train_on(4, dhp::Plain{});
  const auto bucketed = train_on(4, dhp::Bucketed{.bytes = 1024});
  const auto one_exact = train_on(1, dhp::Plain{}, true);
  const auto three_exact = train_on(3, dhp::Bucketed{.bytes = 1024}, true);

  std::printf("                                                     exact sums\n");
  std::printf("step  1 rank        4 ranks       4, buckets    1 rank        3, buckets\n");
  for (std::size_t step : {0, 9, 19, 29}) {
    std::printf("%4zu", step + 1);
    for (const auto* run : {&one, &plain, &bucketed, &one_exact, &three_exact})
      std::printf("  %.10f", run->losses[step]);
    std::printf("\n");
  }
  const bool same_bits = one_exact.losses == three_exact.losses;
  std::printf("deterministic: 1 and 3 ranks give %s\n",
              same_bits ? "the same bits" : "different bits");
  std::printf("all-reduces of a step: %d in one piece, %d in buckets\n\n",
              static_cast<int>(plain.all_reduces.calls),
              static_cast<int>(bucketed.all_reduces.calls));

  // A step first sums the number of targets, one fp64 number, then the fp32 gradients. Then it sums four fp64 numbers
  // for each micro-batch's loss, and for one more row. Exact sums take 16 bytes for a gradient, and a flag.
  constexpr std::int64_t numbers = 8 + (micro_batches + 1) * 4 * 8;
  const auto gradients = 4 * plain.parameters;
  toy::Ledger ledger;
  ledger.line("4 ranks: brought to all-reduces, per step", plain.all_reduces.bytes,
              gradients + numbers);
  ledger.line("4 ranks, buckets: the same bytes", bucketed.all_reduces.bytes, gradients + numbers);
  ledger.line("4 ranks: sent, 2 (n - 1) / n of it", bucketed.sent_bytes,
              1.5 * static_cast<double>(gradients + numbers));
  ledger.line("3 ranks, deterministic: four times the gradients", three_exact.all_reduces.bytes,
              4 * gradients + numbers + 4);
  const bool falls = one.losses.back() < one.losses.front() / 4;
  const bool alike =
      std::abs(one.losses.back() - plain.losses.back()) < 1e-4 && plain.losses == bucketed.losses;
  return toy::status(falls && alike && same_bits && ledger.agrees());
}
