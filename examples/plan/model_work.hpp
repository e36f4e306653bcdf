// ModelWork: the work of a model's layers in one micro-batch, counted by running the training code on the device Meta.
#pragma once

#include <dhp/train/memory_plan.hpp>

#include <vector>

namespace examples {

using Work = dhp::detail::MetaCount;

/// Work of a layer on one rank of the tensor axis.
struct LayerWork {
  Work forward{}, backward{};
  double kept_bytes = 0;                    ///< activations kept for the backward pass
  double output_bytes = 0;                  ///< activations sent to a next stage
  dhp::ParameterList<dhp::Meta> trained{};  ///< layers may share parameters
};

struct ModelWork {
  std::vector<LayerWork> layers{};  ///< the last one includes the loss
  std::vector<double> costs{};  ///< relative cost of each layer, which decides where stages begin
  Work update{};                ///< work of a step outside the layers
  double parameters = 0;        ///< trained elements
  double weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  double transient_bytes = 0;  ///< peak memory beyond state and kept activations

  /// Multiplications and additions of a forward pass.
  [[nodiscard]] double forward_flop() const {
    double flop = 0;
    for (const auto& layer : layers) flop += layer.forward.flop;
    return flop;
  }
};

/// Counts a model on one pipeline stage and one replica: planned.options.layout has only tensor and context axes.
/// Throws if the model cannot be split that way.
template <class Options>
[[nodiscard]] ModelWork count_work(const dhp::PlannedRun<Options>& planned) {
  using dhp::Meta;
  auto options = planned.options;
  options.pipeline = {};
  options.trainer.record = false;
  options.store.sharding = {};
  Meta dev;
  const auto world = dhp::MetaComm<Meta>::world(options.layout, 0);
  const auto example = planned.batch(dev, 0);
  dhp::TrainingRun<Meta> run(dev, dhp::Comm<Meta>::of(world), options, planned.describe, example);
  (void)dev.take_spans();
  dhp::StepBatches<Meta> mine;
  mine.micro_batches = 1;
  mine.same_shapes = true;
  mine.batches.push_back(planned.batch(dev, 0));
  (void)run.trainer().start(mine);

  ModelWork work;
  work.costs = run.stage().options().costs;
  dhp::ModelBuilder<Meta> builder(run.mesh(), options.store);
  const auto model = planned.describe(builder);
  const auto count_parameters = [&](const auto& of) {
    dhp::ParameterList<Meta> list;
    of.parameters(list);
    for (const auto& each : list)
      if (each->spec.is_trained()) work.layers.back().trained.push_back(each);
  };
  auto shape = example.input.shape();
  for (const auto& layer : model.layers) {
    shape = layer.output_shape(shape, example);
    const auto bytes = dhp::detail::as_size(shape.count()) * size_of(options.store.compute);
    work.layers.push_back({.output_bytes = static_cast<double>(bytes)});
    count_parameters(layer);
  }
  count_parameters(model.loss);
  for (const auto& each : run.store().parameters())
    if (each->spec.is_trained())
      work.parameters += static_cast<double>(each->spec.local_shape().count());

  const auto count = work.layers.size();
  std::vector<dhp::detail::MetaSpan> inside;
  double kept = 0;
  for (auto& span : dev.take_spans()) {
    if (span.depth == 2) inside.push_back(std::move(span));
    if (span.depth == 0) work.update.add(span.count);
    if (span.depth != 1) continue;
    const bool forward = span.name.starts_with("forward");
    if (forward || span.name.starts_with("backward")) {
      work.update.add(span.count, -1);
      auto rest = span.count;  // what remains is the loss
      // Layers come first in a forward pass, and last in a backward one.
      for (std::size_t at = 0; at < std::min(count, inside.size()); ++at) {
        auto& layer = work.layers[at];
        const auto& of = forward ? inside[at] : inside[inside.size() - 1 - at];
        (forward ? layer.forward : layer.backward).add(of.count);
        rest.add(of.count, -1);
        if (forward) layer.kept_bytes += of.grown_bytes, kept += of.grown_bytes;
      }
      auto& last = work.layers.back();
      (forward ? last.forward : last.backward).add(rest);
      if (forward) last.kept_bytes += span.grown_bytes - kept, kept = span.grown_bytes;
    }
    inside.clear();
  }
  work.weight_bytes = static_cast<double>(run.store().weight_bytes());
  work.gradient_bytes = static_cast<double>(run.store().gradient_bytes());
  for (const auto& state : run.optimizer().state())
    work.optimizer_bytes += static_cast<double>(state.buffer->size_bytes());
  work.transient_bytes =
      std::max(0.0, static_cast<double>(dev.memory().max_in_use_bytes()) - work.weight_bytes -
                        work.gradient_bytes - work.optimizer_bytes - kept);
  return work;
}

/// Interpolates linearly between the counts of two micro-batch sizes. Only rounding of memory blocks is not linear.
[[nodiscard]] inline ModelWork between(const ModelWork& small, const ModelWork& large,
                                       double share) {
  auto result = small;
  const auto mix = [&](double& of, double to) { of += share * (to - of); };
  for (std::size_t at = 0; at < result.layers.size(); ++at) {
    auto& layer = result.layers[at];
    const auto& to = large.layers[at];
    layer.forward.add(layer.forward, -share).add(to.forward, share);
    layer.backward.add(layer.backward, -share).add(to.backward, share);
    mix(layer.kept_bytes, to.kept_bytes);
    mix(layer.output_bytes, to.output_bytes);
  }
  for (std::size_t at = 0; at < result.costs.size(); ++at) mix(result.costs[at], large.costs[at]);
  mix(result.transient_bytes, large.transient_bytes);
  return result;
}

}  // namespace examples
