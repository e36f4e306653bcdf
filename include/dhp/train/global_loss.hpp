// The loss of a global batch from the losses of its micro-batches, wherever these were computed. Every
// micro-batch has its place in one list; the list is summed in its order, so that the result has the same
// bits in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/parallel/trainable.hpp>

#include <cmath>
#include <span>
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

/// How many micro-batches all replicas have; waits for them. Collective over the data axis.
template <class Dev>
[[nodiscard]] std::int64_t count_micro_batches(Dev& dev, Mesh<Dev>& mesh, std::size_t mine) {
  if (mesh.data().size() == 1) return static_cast<std::int64_t>(mine);
  const std::vector<std::int64_t> count{static_cast<std::int64_t>(mine)};
  auto total = Tensor<Dev>::from_host(dev, {1}, count);
  mesh.data().all_reduce(dev, total.mut()).wait();
  return total.template to_host<std::int64_t>(dev)[0];
}

/// f64 [micro_batches, terms, loss_fields] on the device: the losses of all replicas. `mine` are those of this
/// rank's `batches`, zeros where it does not hold the loss; indices run from 0 without a gap. Collective over
/// the data and the pipeline axis.
template <class Dev>
[[nodiscard]] Tensor<Dev> gather_losses(Dev& dev, Mesh<Dev>& mesh, Tensor<Dev> mine,
                                        std::span<const MicroBatch<Dev>> batches,
                                        std::int64_t micro_batches) {
  auto& data = mesh.data();
  auto& pipeline = mesh.pipeline();
  auto all = Tensor<Dev>::zeros(dev, DType::f64, mine.shape().with(0, micro_batches));
  for (std::size_t at = 0; at < batches.size(); ++at) {
    const auto index = batches[at].index;
    check(index >= 0 && index < micro_batches, "micro-batch ", index, " is not among the ",
          micro_batches, " of this step");
    const auto from =
        mine.view().slice(static_cast<std::int64_t>(at), static_cast<std::int64_t>(at) + 1);
    dev.copy(all.mut().slice(index, index + 1).bytes(), from.bytes(), from.size_bytes());
  }
  // Each entry is written by one rank and zero elsewhere: the sums are exact.
  if (data.size() > 1) data.all_reduce(dev, all.mut()).wait();
  if (pipeline.size() > 1) pipeline.all_reduce(dev, all.mut()).wait();
  return all;
}

/// What gather_losses found, on the host: [micro-batches, terms, loss_fields].
[[nodiscard]] inline GlobalLoss sum_losses(const std::vector<double>& entries, std::size_t terms) {
  GlobalLoss loss{.terms = std::vector<LossTerm>(terms)};
  const auto row = terms * static_cast<std::size_t>(loss_fields);
  loss.micro_batches = row == 0 ? 0 : static_cast<std::int64_t>(entries.size() / row);
  for (std::int64_t index = 0; index < loss.micro_batches; ++index)
    for (std::size_t term = 0; term < terms; ++term) {
      const auto at = static_cast<std::size_t>(index) * row + term * loss_fields;
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
