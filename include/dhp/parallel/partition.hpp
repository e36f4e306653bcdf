// Costs of a model's layers, computed (flops) or measured (seconds), and the cuts that follow from them
// (cut_layers.hpp). Rank 0 of the world decides for all ranks, because different cuts would deadlock.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/loss.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/parallel/cut_layers.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace dhp::detail {
/// Flops of each layer's forward pass on this micro-batch. Those of the last layer include the loss.
template <class Dev>
[[nodiscard]] std::vector<double> computed_costs(const Model<Dev>& model,
                                                 const MicroBatch<Dev>& batch) {
  std::vector<double> costs;
  Shape shape = batch.input.shape();
  for (const auto& layer : model.layers) {
    naming_layer(layer.name(), [&] {
      costs.push_back(layer.flops(shape, batch));
      shape = layer.output_shape(shape, batch);
    });
  }
  if (!costs.empty()) costs.back() += model.loss.flops(shape, batch);
  return costs;
}

/// Seconds of each layer's forward pass on this micro-batch: the faster of two runs. It allocates one layer at a time,
/// so the model may exceed a rank's memory; weights that layers had are lost. Collective over the tensor axis.
template <class Dev>
[[nodiscard]] std::vector<double> measured_costs(Dev& dev, Model<Dev>& model,
                                                 const MicroBatch<Dev>& batch,
                                                 const ParameterStoreOptions& options = {}) {
  const auto seconds = [&](auto& layer, auto forward) {
    ParameterList<Dev> parameters;
    layer.parameters(parameters);
    const ParameterStore<Dev> memory(dev, parameters, options);
    double fastest = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 2; ++round) {
      Tape<Dev> tape({.mode = StepContext::Mode::eval}, &batch);
      dev.synchronize();
      const auto start = std::chrono::steady_clock::now();
      forward(tape);
      dev.synchronize();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      fastest = std::min(fastest, taken.count());
    }
    return fastest;
  };
  std::vector<double> costs;
  Tensor<Dev> x = in_type(dev, batch.input.share(), options.compute);
  for (auto& layer : model.layers) {
    Tensor<Dev> y;
    costs.push_back(seconds(layer, [&](auto& tape) { y = layer.forward(dev, x.share(), tape); }));
    x = std::move(y);
  }
  if (costs.empty()) return costs;
  const auto terms = std::ssize(model.loss.term_names());
  Tensor<Dev> totals(dev, DType::f64, {terms, loss_fields});
  costs.back() += seconds(
      model.loss, [&](auto& tape) { model.loss.forward(dev, x.share(), tape, totals.mut()); });
  return costs;
}

/// Computes the cuts on rank 0 of `world` and returns them on every rank.
template <class Dev>
[[nodiscard]] std::vector<std::int64_t> agree_on_cuts(Dev& dev, Comm<Dev>& world,
                                                      const std::vector<double>& costs, int parts) {
  const auto mine = cut_layers(costs, parts);
  const auto entries = std::ssize(mine);
  auto shared = Tensor<Dev>::from_host(dev, {entries}, mine);
  world.broadcast(dev, shared.mut(), 0).wait();
  world.synchronize(dev);
  return shared.template to_host<std::int64_t>(dev);
}
}  // namespace dhp::detail
