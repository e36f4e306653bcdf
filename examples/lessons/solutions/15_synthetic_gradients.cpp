// Solutions of lesson 15.
#include <dhp/extra/synthetic_gradients.hpp>

#include "lesson.hpp"
#include "toy.hpp"

#include <string>

using toy::Dev;
constexpr int micro_batches = 4;

/// Returns the losses of two linear stages without an activation between them; the target is also linear in the input.
std::vector<double> train(std::optional<dhp::SyntheticGradients> synthetic) {
  return toy::on_each_rank(2, [&](dhp::Comm<Dev> world) {
    Dev dev;
    auto data = toy::batches(dev, micro_batches);
    for (auto& batch : data) {
      auto x = batch.input.to_host<float>(dev);
      std::vector<float> targets;
      for (std::size_t at = 0; at < x.size(); at += 2) targets.push_back(x[at] - 2 * x[at + 1]);
      batch.side.front().second = dhp::Tensor<Dev>::from_host(dev, {batch.samples, 1}, targets);
    }
    const auto network = [](dhp::ModelBuilder<Dev>& build) {
      dhp::Model<Dev> model;
      const auto add = [&](const std::string& name, std::int64_t in, std::int64_t out) {
        model.add(name,
                  dhp::Linear<Dev>(
                      build, name,
                      {.in = in, .out = out, .bias = false, .weight_init = dhp::he_normal(in)}));
      };
      add("first", 2, 4);
      add("last", 4, 1);
      model.loss = dhp::MeanSquaredError<Dev>();
      return model;
    };
    auto options = toy::options({.pipeline = 2}, {.costs = {1, 1}});
    if (synthetic) options.pipeline.schedule = synthetic->schedule();
    options.optimizer = dhp::SgdOptions{};
    options.trainer.learning_rate = {.peak = 0.05};
    dhp::TrainingRun run(dev, std::move(world), options, network, data.front());
    if (synthetic) synthetic->predict_in(run, data.front());
    std::vector<double> losses;
    for (int step = 0; step < 40; ++step) losses.push_back(run.step(data).loss);
    return losses;
  })[0];
}

int main() {
  // 1. With p stages, m micro-batches, a forward pass of 1 and a backward pass of 2 units, a pipeline takes
  // 3 (m + p - 1) units. With synthetic gradients it takes 3 m + p - 1. The saving, 2 (p - 1), does not depend on m.
  std::printf("micro-batches      1     4    16    64   of 4 stages\nunits saved    ");
  for (const int m : {1, 4, 16, 64}) {
    const double pipeline = (m + 3) * 3, synthetic = m * 3 + 3;
    std::printf(" %4.0f%%", 100 * (pipeline - synthetic) / pipeline);
  }
  // 2. The gradient of the squared error is linear in the output. If network and target are linear in the input, the
  // gradient is linear in the activation of each stage, and the predictor learns it.
  const auto waits = train({}), predicts = train(dhp::SyntheticGradients{});
  std::printf("\n\nlinear all through\nstep   pipeline   synthetic\n");
  for (const std::size_t step : {0, 9, 19, 39})
    std::printf("%4zu   %.6f   %.6f\n", step + 1, waits[step], predicts[step]);
  return toy::status(waits.back() < 1e-4 && predicts.back() < 1e-4);
}
