// Lesson 10: D, H and P together. A training run gives each rank its place on three axes: layers use the tensor axis,
// the pipeline its own axis, and data parallelism wraps the stage. Eight ranks follow the serial curve. The formulas of
// lessons 4, 7 and 9 give the bytes of each axis, with the sizes of a rank's part.
#include "toy.hpp"

using toy::Dev;

struct Seen {
  std::vector<double> losses{};
  dhp::CallCount tensor{}, data{}, pipeline{}, messages{};  // all-reduces of a step; messages sent
  std::int64_t parameters = 0;                              // parameters of this rank, with padding
};

int main() {
  const auto serial = toy::on_each_rank(1, toy::train, toy::options({}), 8, 40)[0];

  std::vector<Seen> eight(8);
  dhp::run_ranks<Dev>(8, [&](dhp::Comm<Dev> world) {
    Dev dev;
    const auto counts = std::make_shared<dhp::CallCounts>();
    world = counted(dev, world, counts);
    const auto options =
        toy::options({.data = 2, .tensor = 2, .pipeline = 2}, {.schedule = dhp::ZeroBubble{}});
    const auto batches = toy::batches(dev, 8);
    dhp::TrainingRun run(dev, world, options, toy::network, batches.front());
    auto& seen = eight[static_cast<std::size_t>(world.rank())];
    for (int step = 0; step < 40; ++step) {
      counts->reset();
      const double loss = run.step(batches).loss;
      seen.losses.push_back(loss);  // every rank has the same loss
    }
    // The two ranks of an axis are `apart` ranks apart: the tensor axis runs fastest, then data, then pipeline.
    const auto pair = [&](int apart) {
      const int first = world.rank() - world.rank() / apart % 2 * apart;
      return dhp::CallCounts::Group{first, first + apart};
    };
    seen.tensor = counts->of(pair(1), dhp::CallKind::all_reduce);
    seen.data = counts->of(pair(2), dhp::CallKind::all_reduce);
    seen.pipeline = counts->of(pair(4), dhp::CallKind::all_reduce);
    seen.messages = counts->of(pair(4), dhp::CallKind::send);
    seen.parameters = run.store().size();
  });

  std::printf("step   1 rank      2 x 2 x 2 ranks\n");
  for (std::size_t step : {0u, 9u, 19u, 29u, 39u})
    std::printf("%4zu   %.8f  %.8f\n", step + 1, serial[step], eight[0].losses[step]);

  // Each of the two replicas gets 4 of the 8 micro-batches, with 16 samples each. Rank 0 has the first stage: layers
  // [2, 32] and [32, 16], whose 16 output columns go to rank 4, the second stage: layers [16, 32] and [32, 1].
  constexpr std::int64_t mine = 4;
  constexpr std::int64_t samples = toy::samples_of_a_micro_batch;
  constexpr std::int64_t losses = 8 * 4 * (8 + 1);  // 4 fp64 numbers a row
  constexpr std::int64_t norms = 8 * 8;             // squared norms of 8 parameters
  toy::Ledger ledger("bytes of one rank, per step");
  for (const std::size_t rank : {0u, 4u}) {
    const auto& seen = eight[rank];
    std::printf("stage %d\n", rank == 0 ? 0 : 1);
    // Lesson 4: fp32 gradients with padding, the count of targets, and losses.
    ledger.line("  data axis: all-reduced", seen.data.bytes, 4 * seen.parameters + 8 + losses);
    // Lesson 7: a pair's output in forward, and its input's gradient in backward. Once a step also the squared norms,
    // and the row by which a rank can ask all others to stop.
    const std::int64_t columns = rank == 0 ? 16 + 2 : 1 + 16;
    ledger.line("  tensor axis: all-reduced", seen.tensor.bytes,
                mine * 4 * samples * columns + norms + 32);
    ledger.line("  tensor axis: all-reduces (calls)", seen.tensor.calls, 2 * mine + 2);
    // Lesson 9: activations to the next stage, or gradients to the previous one.
    ledger.line("  pipeline axis: sent in messages", seen.messages.bytes, mine * 4 * samples * 16);
    ledger.line("  pipeline axis: all-reduced", seen.pipeline.bytes, losses + norms);
  }
  const bool same = std::abs(serial.back() - eight[0].losses.back()) < 1e-4;
  return toy::status(same && ledger.agrees());
}
