// The loss of a global batch from the losses of its micro-batches, wherever these were computed. Every
// micro-batch has its place in one list; the list is summed in its order, so that the result has the same
// bits in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/parallel/trainable.hpp>

#include <cmath>
#include <vector>

namespace dhp {

struct GlobalLoss {
  std::vector<LossTerm> terms;              ///< summed over all micro-batches
  std::int64_t micro_batches = 0;           ///< of all replicas
  std::int64_t first_bad_micro_batch = -1;  ///< index of the first that is not finite

  /// What is minimised: the sum of the terms' means.
  [[nodiscard]] double value() const {
    double sum = 0;
    for (const auto& term : terms) sum += term.mean();
    return sum;
  }
};

/// Collective over the data and the pipeline axis. `mine` are this rank's losses (none where the loss is
/// not held), batches the number of this replica's micro-batches; indices run from 0 without a gap.
template <class Dev>
[[nodiscard]] GlobalLoss global_loss(Dev& dev, Mesh<Dev>& mesh,
                                     const std::vector<MicroBatchLoss>& mine, std::int64_t batches,
                                     std::size_t terms) {
  auto data = mesh.data();
  auto pipeline = mesh.pipeline();
  auto total = Tensor<Dev>::from_host(dev, {1}, std::vector<std::int64_t>{batches});
  if (data.size() > 1) data.all_reduce(dev, total.mut()).wait();
  GlobalLoss loss{.terms = std::vector<LossTerm>(terms),
                  .micro_batches = total.template to_host<std::int64_t>(dev)[0]};
  if (loss.micro_batches == 0) return loss;

  // Each entry is written by one rank and zero elsewhere: the sums below are exact.
  constexpr std::size_t fields = 4;
  std::vector<double> entries(static_cast<std::size_t>(loss.micro_batches) * terms * fields, 0);
  for (const auto& micro_batch : mine) {
    check(micro_batch.index >= 0 && micro_batch.index < loss.micro_batches, "micro-batch ",
          micro_batch.index, " is not among the ", loss.micro_batches, " of this step");
    for (std::size_t term = 0; term < terms; ++term) {
      const auto at = (static_cast<std::size_t>(micro_batch.index) * terms + term) * fields;
      const auto& from = micro_batch.terms[term];
      entries[at] = from.sum;
      entries[at + 1] = static_cast<double>(from.count);
      entries[at + 2] = static_cast<double>(from.correct);
      entries[at + 3] = static_cast<double>(from.correct_in_five);
    }
  }
  const auto count = static_cast<std::int64_t>(entries.size());
  auto table = Tensor<Dev>::from_host(dev, {count}, entries);
  if (data.size() > 1) data.all_reduce(dev, table.mut()).wait();
  if (pipeline.size() > 1) pipeline.all_reduce(dev, table.mut()).wait();
  entries = table.template to_host<double>(dev);

  for (std::int64_t index = 0; index < loss.micro_batches; ++index)
    for (std::size_t term = 0; term < terms; ++term) {
      const auto at = (static_cast<std::size_t>(index) * terms + term) * fields;
      loss.terms[term].sum += entries[at];
      loss.terms[term].count += static_cast<std::int64_t>(entries[at + 1]);
      loss.terms[term].correct += static_cast<std::int64_t>(entries[at + 2]);
      loss.terms[term].correct_in_five += static_cast<std::int64_t>(entries[at + 3]);
      if (!std::isfinite(entries[at]) && loss.first_bad_micro_batch < 0)
        loss.first_bad_micro_batch = index;
    }
  return loss;
}

}  // namespace dhp
