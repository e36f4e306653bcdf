// Trainable is a training loop's interface to a model, which may be whole or a pipeline stage, alone or replicated.
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/nn/replicas.hpp>

#include <span>
#include <string>
#include <vector>

namespace dhp {

template <class Dev>
struct Step {
  std::span<const MicroBatch<Dev>> batches;  ///< this replica's micro-batches
  std::int64_t micro_batches = 0;            ///< number of micro-batches of all replicas
  StepContext context{};                     ///< passed to every layer
  /// i64 [terms]: counts of the loss terms, summed over replicas by DataParallel. Empty: the counts of `batches`.
  ConstView<Dev> counts{};
  /// The StepState, whose loss scale multiplies gradients. Empty: a scale of 1.
  ConstView<Dev> state{};
};

/// forward_backward adds to the gradients of store(). forward_backward and evaluate return the losses of the replica's
/// micro-batches, f64 [micro-batches, terms, loss_fields] on the device: zeros on ranks without the loss. replay
/// repeats micro-batches on this replica alone, to find the layer with a non-finite result.
template <class T, class Dev>
concept Trainable = requires(T& model, Dev& dev, const Step<Dev>& step) {
  { model.forward_backward(dev, step) } -> std::same_as<Tensor<Dev>>;
  { model.evaluate(dev, step) } -> std::same_as<Tensor<Dev>>;
  {model.replay(dev, step)};
  { model.term_names() } -> std::same_as<std::vector<std::string>>;
  { model.store() } -> std::same_as<ParameterStore<Dev>&>;
};

namespace detail {
/// A Trainable that may be one of several replicas. It calls ready(range) for each reduce action: once per range and
/// step, or after each micro-batch if replicas shard gradients.
template <class T, class Dev>
concept OfReplicas = Trainable<T, Dev> && requires(T& model, Dev& dev, const Step<Dev>& step,
                                                   Replicas<Dev>* replicas, void (&ready)(Range)) {
  { model.forward_backward(dev, step, replicas, ready) } -> std::same_as<Tensor<Dev>>;
  { model.evaluate(dev, step, replicas) } -> std::same_as<Tensor<Dev>>;
  {model.replay(dev, step, replicas)};
};

/// A Trainable with predict(): the model's predictions for this replica's micro-batches, in order; empty on ranks
/// without the loss.
template <class T, class Dev>
concept Predicts = Trainable<T, Dev> && requires(T& model, Dev& dev, const Step<Dev>& step) {
  { model.predict(dev, step) } -> std::same_as<std::vector<Tensor<Dev>>>;
};

/// The count of each term in these micro-batches, in the order of `names`.
template <class Dev>
[[nodiscard]] std::vector<std::int64_t> counts_of(std::span<const MicroBatch<Dev>> batches,
                                                  const std::vector<std::string>& names) {
  std::vector<std::int64_t> counts(names.size(), 0);
  for (const auto& batch : batches)
    for (std::size_t term = 0; term < names.size(); ++term)
      counts[term] += batch.count_of(names[term]);
  return counts;
}

/// The counts of a step on the device, i64 [terms]: step.counts or, if empty, the counts of its micro-batches.
template <class Dev>
[[nodiscard]] Tensor<Dev> device_counts(Dev& dev, const Step<Dev>& step,
                                        const std::vector<std::string>& names) {
  if (step.counts) return clone(dev, step.counts);
  return Tensor<Dev>::from_host(dev, {std::ssize(names)}, counts_of(step.batches, names));
}
}  // namespace detail

}  // namespace dhp
