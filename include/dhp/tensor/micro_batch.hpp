// MicroBatch: micro-batch k of a step holds the global samples [k*b, (k+1)*b); the last one of an epoch may be
// shorter. Replicas are assigned whole micro-batches, so results do not depend on the assignment. StepBatches: one
// replica's micro-batches of a step.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
struct ContextRows;
}  // namespace detail

template <class Dev>
struct MicroBatch {
  std::int64_t index = 0;         ///< k: index in the step, over all replicas
  std::int64_t first_sample = 0;  ///< index of its first sample in the step
  std::int64_t samples = 0;       ///< N
  Tensor<Dev> input;  ///< input of the first layer: images [N, H, W, C]; none for tokens
  /// Side inputs, which every stage can read: "labels", "token_ids", ...
  std::vector<std::pair<std::string, Tensor<Dev>>> side;
  /// The number of tokens or samples that each loss term counts here.
  std::vector<std::pair<std::string, std::int64_t>> counts;
  /// Data of the samples' rows that layers keep for evaluation passes over the rows after them. Null: nothing.
  struct Cache {
    std::int64_t capacity = 0;  ///< rows of a sample, at most
    /// Keys and values [2, N, capacity, columns], by the layer's random use and its tensor group.
    std::map<std::pair<std::uint32_t, int>, Tensor<Dev>> attention{};
  };
  std::shared_ptr<Cache> cache{};
  /// How ranks of a context axis share the rows. Null: each has all.
  std::shared_ptr<const detail::ContextRows> context{};
  /// So many groups of equally many rows follow each other here, and exact sums over rows add up those of groups; 0:
  /// sums are of all rows.
  int row_groups = 0;

  /// A second owner of the same tensors.
  [[nodiscard]] MicroBatch share() const {
    MicroBatch second{index,  first_sample, samples, input.share(), {},
                      counts, cache,        context, row_groups};
    for (const auto& [name, tensor] : side) second.side.emplace_back(name, tensor.share());
    return second;
  }
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Throws if there is no side input of that name.
  [[nodiscard]] const Tensor<Dev>& at(std::string_view name) const {
    const auto* found = find(name);
    check(found != nullptr, "the batch has no side input \"", name,
          "\"; its loader must provide it for this model");
    return *found;
  }
  [[nodiscard]] std::int64_t count_of(std::string_view term) const {
    for (const auto& [name, count] : counts)
      if (name == term) return count;
    fail("the batch does not say how much the loss term \"", term, "\" counts");
  }

 private:
  [[nodiscard]] const Tensor<Dev>* find(std::string_view name) const {
    for (const auto& [key, tensor] : side)
      if (key == name) return &tensor;
    return nullptr;
  }
};

/// The micro-batches of one replica in one step.
template <class Dev>
struct StepBatches {
  std::vector<MicroBatch<Dev>> batches;
  std::int64_t micro_batches = 0;  ///< of all replicas
  std::int64_t samples = 0;        ///< of all replicas
  /// All micro-batches of all replicas have the same shape, and replicas have equally many.
  bool same_shapes = false;

  /// A second owner of the same tensors.
  [[nodiscard]] StepBatches share() const {
    StepBatches second{{}, micro_batches, samples, same_shapes};
    for (const auto& batch : batches) second.batches.push_back(batch.share());
    return second;
  }
};

/// The part of `all` micro-batches of a step that one of `replicas` is assigned.
template <class Dev>
[[nodiscard]] StepBatches<Dev> assigned(std::span<const MicroBatch<Dev>> all, int replica,
                                        int replicas) {
  StepBatches<Dev> mine;
  mine.micro_batches = std::ssize(all);
  for (const auto& batch : all) mine.samples += batch.samples;
  const auto part = part_of(mine.micro_batches, replicas, replica);
  for (auto at = part.first; at < part.last; ++at)
    mine.batches.push_back(all[detail::as_size(at)].share());
  return mine;
}

}  // namespace dhp
