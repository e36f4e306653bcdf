// The estimate beside a real step: eight ranks, two on each axis, train a row of equal layers, and what each sends and
// holds is counted. ZeRO's shares are whole pages, an eighth more here; the few bytes of losses and norms are extra.
#include <dhp/comm/observe/count.hpp>
#include <dhp/default_device.hpp>

#include "step_estimate.hpp"

#include <atomic>
#include <cstdio>
#include <string>

namespace {

using Dev = dhp::DefaultDevice;
constexpr std::int64_t columns = 256, rows = 16;
constexpr int layers = 4, micro_batches = 8;
constexpr int steps = 8;  // counted: what ZeRO gathers behind a step may fall into the next one

dhp::MicroBatch<Dev> batch(Dev& dev, std::int64_t k) {
  const std::vector<float> values(rows * columns, 0.5f);
  dhp::MicroBatch<Dev> made;
  made.index = k;
  made.first_sample = k * rows;
  made.samples = rows;
  made.input = dhp::Tensor<Dev>::from_host(dev, {rows, columns}, values);
  made.side.emplace_back("targets", made.input.share());
  made.counts = {{"elements", rows * columns}};
  return made;
}

/// A layer of the estimate has two all-reduces in each direction: two of these.
dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  build.place({{"*.in.*", dhp::Placement::columns},
               {"*.out.weight", dhp::Placement::rows},
               {"*", dhp::Placement::replicated}});
  dhp::Model<Dev> model;
  for (int pair = 0; pair < 2 * layers; ++pair) {
    const auto name = std::to_string(pair);
    model.add(name, dhp::FeedForward<Dev>(build, name + ".in", name + ".out",
                                          {.columns = columns, .inner = 4 * columns}));
  }
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

/// Whether every count is as estimated or up to `most` times as much; of an upper bound, not more than that.
bool compare(playground::Question question, double most) {
  question.data = question.tensor = question.pipeline = 2;
  question.micro_batches = micro_batches;
  question.layers = layers;
  question.parameters = 2.0 * (8 * columns * columns + 5 * columns);
  question.boundary = 4 * rows * columns;
  const auto answer = playground::estimate(question);
  std::atomic<bool> agree = true;
  dhp::run_ranks<Dev>(8, [&](dhp::Comm<Dev> world) {
    Dev dev;
    const int rank = world.rank();
    const auto counts = std::make_shared<dhp::CallCounts>();
    dhp::TrainingOptions options{
        .layout = {.data = 2, .tensor = 2, .pipeline = 2},
        .pipeline = {.schedule = question.schedule, .chunks = question.chunks},
        .optimizer = dhp::AdamWOptions{}};
    options.store.sharding = {.stage = static_cast<dhp::ZeroStage>(question.zero),
                              .bucket_bytes = 1 << 20};
    std::vector<dhp::MicroBatch<Dev>> batches;
    for (int k = 0; k < micro_batches; ++k) batches.push_back(batch(dev, k));
    dhp::TrainingRun run(dev, counted(dev, world, counts), options, network, batches.front());
    (void)run.step(batches);
    counts->reset();
    for (int step = 0; step < steps; ++step) (void)run.step(batches);
    if (rank % 4 != 0) return;  // one of each stage
    // The two ranks of an axis are so many apart: the tensor axis runs fastest, then data, then pipeline.
    const auto sent = [&](int apart) {
      const int first = rank - rank / apart % 2 * apart;
      return counts->sent_bytes({first, first + apart}) / steps;
    };
    double optimizer = 0;
    for (const auto& state : run.optimizer().state())
      optimizer += static_cast<double>(state.buffer->size_bytes());
    const auto& stage = answer.stages[static_cast<std::size_t>(rank / 4)];
    const auto line = [&](const char* what, double is, double estimated, bool bound = false) {
      const bool good = is <= most * estimated && (bound || is >= estimated);
      std::printf("%-12s zero %d  stage %d  %-20s counted %9.0f  estimated %9.0f%s\n",
                  question.schedule.name().c_str(), question.zero, rank / 4, what, is, estimated,
                  good ? "" : "  <- differs");
      if (!good) agree = false;
    };
    line("sent over D", sent(2), stage.sent.data, question.zero == 3);
    line("sent over H", sent(1), stage.sent.tensor);
    line("sent over P", sent(4), stage.sent.pipeline);
    line("weights", static_cast<double>(run.store().weight_bytes()), stage.memory.weights);
    line("gradients", static_cast<double>(run.store().gradient_bytes()), stage.memory.gradients);
    line("optimizer", optimizer, stage.memory.optimizer);
  });
  return agree;
}

}  // namespace

int main() {
  const bool all[] = {
      compare({.schedule = dhp::OneForwardOneBackward{}, .zero = 0}, 1.01),
      compare({.schedule = dhp::Interleaved{}, .chunks = 2, .zero = 1}, 1.2),
      compare({.schedule = dhp::ZeroBubble{}, .zero = 2}, 1.2),
      compare({.schedule = dhp::GPipe{}, .zero = 3}, 1.2),
  };
  return all[0] && all[1] && all[2] && all[3] ? 0 : 1;
}
