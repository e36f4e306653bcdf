// Trainable: what a training loop drives, whatever is inside: one rank's whole model, a pipeline stage,
// or either of them under data parallelism.
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <span>
#include <string>
#include <vector>

namespace dhp {

/// One step, as this replica sees it.
template <class Dev>
struct Step {
  std::span<const MicroBatch<Dev>> batches;  ///< this replica's micro-batches
  std::uint64_t seed = 0;
  std::uint32_t number = 0;
  double loss_scale = 1;  ///< gradients come out multiplied by it
  /// Of each loss term over the global batch; empty: of `batches`.
  std::vector<std::int64_t> counts{};
  /// Check what each layer returns and name the first that is not finite.
  bool find_nonfinite = false;
  /// All replicas have as many micro-batches; DataParallel finds out.
  bool equal_shares = true;
};

/// The loss terms of one micro-batch; index is its number in the step.
struct MicroBatchLoss {
  std::int64_t index = 0;
  std::vector<LossTerm> terms;
};

/// replay runs micro-batches again on this replica alone, to name what is not finite in them.
/// forward_backward adds to the gradients of store(); ready(range) is called once per range and step, when
/// nothing on this replica will add to it any more. It and evaluate return the losses of the replica's
/// micro-batches on the ranks that hold the loss, and none elsewhere.
template <class T, class Dev>
concept Trainable = requires(T& model, Dev& dev, const Step<Dev>& step, void (&ready)(Range)) {
  { model.forward_backward(dev, step, ready) } -> std::same_as<std::vector<MicroBatchLoss>>;
  { model.evaluate(dev, step) } -> std::same_as<std::vector<MicroBatchLoss>>;
  {model.replay(dev, step)};
  { model.term_names() } -> std::same_as<std::vector<std::string>>;
  { model.store() } -> std::same_as<ParameterStore<Dev>&>;
};

/// How often each term counts in these micro-batches, in the order of `names`.
template <class Dev>
[[nodiscard]] std::vector<std::int64_t> counts_of(std::span<const MicroBatch<Dev>> batches,
                                                  const std::vector<std::string>& names) {
  std::vector<std::int64_t> counts(names.size(), 0);
  for (const auto& batch : batches)
    for (std::size_t term = 0; term < names.size(); ++term)
      counts[term] += batch.count_of(names[term]);
  return counts;
}

/// What one unit of each term's sum weighs in the objective: loss_scale / global count; 0 for no count.
[[nodiscard]] inline std::vector<double> objective_scales(const std::vector<std::int64_t>& counts,
                                                          double loss_scale) {
  std::vector<double> scales;
  for (const auto count : counts)
    scales.push_back(count == 0 ? 0 : loss_scale / static_cast<double>(count));
  return scales;
}

}  // namespace dhp
