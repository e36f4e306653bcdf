// Lesson 15: a stage that does not wait. In lesson 8 the first stage waits for the gradient of its output. Here it
// continues with a predicted gradient, a linear map of its own activation; the map is corrected when the true gradient
// arrives (synthetic gradients, Jaderberg et al. 2017). The pipeline has no bubble on its way back. The price is that
// all stages but the last one learn from guesses.
#include <dhp/extra/synthetic_gradients.hpp>

#include "lesson.hpp"
#include "toy.hpp"

#include <chrono>
#include <string>
#include <thread>

using toy::Dev;
constexpr int stages = 4, micro_batches = 4, steps = 40;
constexpr std::int64_t width = 16;

/// A layer that computes nothing but takes time, twice as long in the backward pass.
struct Slow : dhp::ElementwiseLayer<Dev> {
  static constexpr auto time = std::chrono::microseconds(250);
  dhp::Tensor<Dev> forward(Dev&, dhp::Tensor<Dev> x, dhp::Tape<Dev>&) {
    std::this_thread::sleep_for(time);
    return x;
  }
  dhp::Tensor<Dev> backward(Dev&, dhp::Tensor<Dev> dy, dhp::Tape<Dev>&) {
    std::this_thread::sleep_for(2 * time);
    return dy;
  }
};

/// Four blocks: a slow layer, a linear layer and its activation.
dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  dhp::Model<Dev> model;
  for (int block = 0; block < stages; ++block) {
    const std::int64_t in = block == 0 ? 2 : width, out = block == stages - 1 ? 1 : width;
    const auto name = "linear " + std::to_string(block);
    model.add("slow " + std::to_string(block), Slow());
    model.add(name, dhp::Linear<Dev>(build, name,
                                     {.in = in, .out = out, .weight_init = dhp::he_normal(in)}));
    if (block < stages - 1) model.add("gelu " + std::to_string(block), dhp::gelu<Dev>());
  }
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

struct Seen {
  std::vector<double> losses{};
  double step_ms = 0;
  double sent_bytes = 0;  // bytes sent by this stage in a step, both ways
};

Seen train(dhp::Comm<Dev> plain_world, std::optional<dhp::SyntheticGradients> synthetic) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const auto data = toy::batches(dev, micro_batches);
  // Each stage gets one block.
  auto options = toy::options({.pipeline = stages}, {.costs = {1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0}});
  if (synthetic) options.pipeline.schedule = synthetic->schedule();
  options.optimizer = dhp::SgdOptions{};
  options.trainer.learning_rate = {.peak = 0.05};
  dhp::TrainingRun run(dev, world, options, network, data.front());
  if (synthetic) synthetic->predict_in(run, data.front());
  counts->reset();
  Seen seen;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) seen.losses.push_back(run.step(data).loss);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  seen.step_ms = taken.count() / steps;
  const auto sends = counts->of(toy::all_ranks(stages), dhp::CallKind::send);
  seen.sent_bytes = static_cast<double>(sends.bytes) / steps;
  return seen;
}

int main() {
  const auto waits = toy::on_each_rank(stages, train, std::nullopt);
  const auto predicts = toy::on_each_rank(stages, train, dhp::SyntheticGradients{});
  constexpr dhp::SyntheticGradients zero{.rate = 1e-12};  // predictions stay near zero
  const auto alone = toy::on_each_rank(stages, train, zero);

  std::printf("step   pipeline   synthetic   the last stage alone\n");
  for (const std::size_t step : {0, 9, 19, 39})
    std::printf("%4zu    %.5f     %.5f     %.5f\n", step + 1, waits[0].losses[step],
                predicts[0].losses[step], alone[0].losses[step]);
  constexpr double forward = 0.25, backward = 0.5;  // milliseconds
  std::printf("ms per step: %.1f, at least %.2f; synthetic: %.1f, at least %.2f\n",
              waits[0].step_ms, (micro_batches + stages - 1) * (forward + backward),
              predicts[0].step_ms, micro_batches * (forward + backward) + (stages - 1) * forward);

  // Bytes of all micro-batches' activations, or of their gradients.
  const auto message = 4.0 * micro_batches * toy::samples_of_a_micro_batch * width;
  toy::Ledger ledger("bytes that a stage sends in a step");
  ledger.line("the first stage: activations", waits[0].sent_bytes, message);
  ledger.line("the second stage: activations and gradients", waits[1].sent_bytes, 2 * message);
  ledger.line("the first stage, synthetic gradients", predicts[0].sent_bytes, message);
  ledger.line("the second stage, synthetic gradients", predicts[1].sent_bytes, 2 * message);

  const bool helps = predicts[0].losses.back() < alone[0].losses.back();
  const bool costs = predicts[0].losses.back() > waits[0].losses.back();
  return toy::status(ledger.agrees() && helps && costs);
}
