// Helpers of the lessons: a small network, and samples of a function that it can learn, y = sin(3 x0) * x1. All numbers
// are functions of (sample, element), so every rank makes its own.
#pragma once

#include "lesson.hpp"

#include <cmath>
#include <utility>
#include <vector>

namespace toy {

inline constexpr std::int64_t samples_of_a_micro_batch = 16;

/// Makes micro-batch k: input [16, 2], side input "targets" [16, 1].
inline dhp::MicroBatch<Dev> batch(Dev& dev, std::int64_t k) {
  const dhp::RandomStream random{.seed = 1};
  std::vector<float> x, y;
  const auto first = k * samples_of_a_micro_batch;
  for (auto sample = first; sample < first + samples_of_a_micro_batch; ++sample) {
    const auto at = static_cast<std::uint64_t>(2 * sample);
    const double a = 2 * random.uniform(at) - 1;
    const double b = 2 * random.uniform(at + 1) - 1;
    x.push_back(static_cast<float>(a));
    x.push_back(static_cast<float>(b));
    y.push_back(static_cast<float>(std::sin(3 * a) * b));
  }
  return micro_batch(k, dhp::Tensor<Dev>::from_host(dev, {samples_of_a_micro_batch, 2}, x),
                     dhp::Tensor<Dev>::from_host(dev, {samples_of_a_micro_batch, 1}, y));
}

/// Two pairs of linear layers; each pair is 32 columns wide inside. The tensor axis splits the outputs of a pair's
/// first layer and the inputs of its second.
inline dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  const auto linear = [](std::int64_t in, std::int64_t out) {
    return dhp::LinearOptions{.in = in, .out = out, .weight_init = dhp::he_normal(in)};
  };
  build.place({{"{first,third}.*", dhp::Placement::columns},
               {"{second,last}.weight", dhp::Placement::rows},
               {"*", dhp::Placement::replicated}});
  dhp::Model<Dev> model;
  model.add("first", dhp::Linear<Dev>(build, "first", linear(2, 32)));
  model.add("gelu 1", dhp::gelu<Dev>());
  model.add("second", dhp::Linear<Dev>(build, "second", linear(32, 16)));
  model.add("gelu 2", dhp::gelu<Dev>());
  model.add("third", dhp::Linear<Dev>(build, "third", linear(16, 32)));
  model.add("gelu 3", dhp::gelu<Dev>());
  model.add("last", dhp::Linear<Dev>(build, "last", linear(32, 1)));
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

/// Makes all micro-batches of a step.
inline std::vector<dhp::MicroBatch<Dev>> batches(Dev& dev, int micro_batches) {
  std::vector<dhp::MicroBatch<Dev>> result;
  for (std::int64_t k = 0; k < micro_batches; ++k) result.push_back(batch(dev, k));
  return result;
}

/// Returns the options that all lessons train with.
inline dhp::TrainingOptions options(dhp::MeshShape layout, dhp::PipelineOptions pipeline = {}) {
  return {.layout = layout,
          .pipeline = std::move(pipeline),
          .optimizer = dhp::AdamWOptions{.weight_decay = 0},
          .trainer = {.learning_rate = {.peak = 0.01}}};
}

/// Trains the network on one step's micro-batches again and again, on every rank; returns the loss of each step.
inline std::vector<double> train(dhp::Comm<Dev> world, const dhp::TrainingOptions& options,
                                 int micro_batches, int steps) {
  Dev dev;
  const auto data = batches(dev, micro_batches);
  dhp::TrainingRun run(dev, std::move(world), options, network, data.front());
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(run.step(data).loss);
  return losses;
}

}  // namespace toy
