// Lesson 16: fewer bytes for D. Replicas exchange every gradient in every step. Over a slow network they can send less:
// rounded numbers, only the largest, two thin factors, or signs. The part that a step does not send is added to the
// next gradient from an *error memory*, so nothing is lost, only late. What does each save and cost?
#include <dhp/extra/all_training_options.hpp>

#include "lesson.hpp"
#include "toy.hpp"

#include <string>

using toy::Dev;
constexpr int replicas = 4, micro_batches = 4;  // micro_batches: those of a step
constexpr int steps = 150;
constexpr std::int64_t width = 64;

// The network's matrices have 128, 4,096 and 64 elements, its vectors 64, 64 and 1.
dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    return dhp::Linear<Dev>(build, name, {.in = in, .out = out, .weight_init = dhp::he_normal(in)});
  };
  dhp::Model<Dev> model;
  model.add("first", linear("first", 2, width));
  model.add("gelu 1", dhp::gelu<Dev>());
  model.add("second", linear("second", width, width));
  model.add("gelu 2", dhp::gelu<Dev>());
  model.add("last", linear("last", width, 1));
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

struct Seen {
  double loss = 0;             // mean loss of the last ten steps
  double sent_bytes = 0;       // bytes sent by one rank in a step
  std::int64_t gradients = 0;  // number of gradients, with the padding that aligns each parameter
};

Seen train(dhp::Comm<Dev> plain_world, const dhp::ReducerChoice& reducer) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  dhp::AllTrainingOptions options = toy::options({.data = replicas});
  options.reducer = reducer;
  dhp::TrainingRun run(dev, world, options, network, toy::batch(dev, 0));
  Seen seen{.gradients = run.store().size()};
  for (int step = 0; step < steps; ++step) {
    std::vector<dhp::MicroBatch<Dev>> batches;  // new samples in every step
    for (int k = 0; k < micro_batches; ++k) {
      batches.push_back(toy::batch(dev, step * micro_batches + k));
      batches.back().index = k;
    }
    counts->reset();
    const auto loss = run.step(batches).loss;
    if (step >= steps - 10) seen.loss += loss / 10;
    seen.sent_bytes = counts->sent_bytes(toy::all_ranks(replicas));
  }
  return seen;
}

int main() {
  const auto run = [](const dhp::ReducerChoice& reducer) {
    return toy::on_each_rank(replicas, train, reducer)[0];
  };
  struct Row {
    const char* name;
    dhp::ReducerChoice reducer;
    std::int64_t reduced, gathered;  // bytes that a rank brings to all-reduces and all-gathers
  };
  constexpr std::int64_t matrices = 2 * width + width * width + width, vectors = width + width + 1;
  const auto plain = run(dhp::Plain{});
  const Row rows[] = {
      {"16 bits", dhp::SixteenBit{}, 4 * vectors + 2 * matrices, 0},
      // 5 % of each matrix, rounded up, at 8 bytes an element: 4 for its index and 4 for its value.
      {"the largest 5 %", dhp::TopK{.share = 0.05}, 4 * vectors, 8 * (7 + 205 + 4)},
      // Factors of 64 x 2 and 2 x 64 for the large matrix; for the others factors would not be smaller.
      {"PowerSGD, rank 2", dhp::PowerSgd{.rank = 2},
       4 * (vectors + 2 * width + width) + 4 * 2 * (width + width), 0},
      // One bit for each element, and a magnitude of 8 bytes for each matrix.
      {"one bit", dhp::OneBit{}, 4 * vectors, matrices / 8 + 3 * 8},
  };
  // Besides gradients a step sums a count and the losses, as in lesson 4.
  constexpr std::int64_t numbers = 8 + (micro_batches + 1) * 4 * 8;
  const auto sent = [](std::int64_t reduced, std::int64_t gathered) {
    return dhp::sent_bytes(dhp::CallKind::all_reduce, reduced, replicas) +
           dhp::sent_bytes(dhp::CallKind::all_gather, gathered, replicas);
  };
  toy::Ledger ledger("bytes that one of 4 ranks sends in a step");
  ledger.line("fp32", plain.sent_bytes, sent(4 * plain.gradients + numbers, 0));
  std::string losses;
  bool learns = true;
  const auto tell = [&](const char* name, const Seen& seen) {
    char line[80];
    std::snprintf(line, sizeof line, "%-20s 1/%-8.1f %.4f\n", name,
                  plain.sent_bytes / seen.sent_bytes, seen.loss);
    losses += line;
    learns = learns && seen.loss < 0.02;
  };
  tell("fp32", plain);
  for (const auto& [name, reducer, reduced, gathered] : rows) {
    const auto seen = run(reducer);
    ledger.line(name, seen.sent_bytes, sent(reduced + numbers, gathered));
    tell(name, seen);
  }
  std::printf("\n%-20s %-10s loss after %d steps\n%s", "gradients as", "bytes", steps,
              losses.c_str());
  return toy::status(ledger.agrees() && learns);
}
