// Micro-batch k of a step holds b samples, [k*b, (k+1)*b) of the step. The last micro-batch of an epoch may be shorter.
// Each replica is assigned whole micro-batches, so results do not depend on the assignment.
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
  std::int64_t index = 0;         ///< k: index in the step, counted over all replicas
  std::int64_t first_sample = 0;  ///< index in the step of this micro-batch's first sample
  std::int64_t samples = 0;       ///< N: number of samples
  Tensor<Dev> input;  ///< input of the first layer: images [N, H, W, C]; empty for tokens
  /// Side inputs by name, such as "labels" or "token_ids". Every stage can read them.
  std::vector<std::pair<std::string, Tensor<Dev>>> side;
  /// Number of tokens or samples that each loss term counts in this micro-batch, by the term's name.
  std::vector<std::pair<std::string, std::int64_t>> counts;
  /// A key-value cache: evaluation passes that compute only later rows read the earlier rows' keys and values from it.
  struct Cache {
    std::int64_t capacity = 0;  ///< maximum number of rows per sample
    /// Keys and values [2, N, capacity, columns], keyed by the layer's address and the piece.
    std::map<std::pair<std::uintptr_t, int>, Tensor<Dev>> attention{};
  };
  std::shared_ptr<Cache> cache{};  ///< null: no cache
  /// How the ranks of a context axis share the rows. Null means that each rank has all rows.
  std::shared_ptr<const detail::ContextRows> context{};
  /// Number of consecutive, equally long groups of rows. Sums over rows first sum each group, then add these sums
  /// exactly. 0: sums are over all rows together.
  int row_groups = 0;

  /// Returns a second owner of the same tensors.
  [[nodiscard]] MicroBatch share() const {
    MicroBatch second{index,  first_sample, samples, input.share(), {},
                      counts, cache,        context, row_groups};
    for (const auto& [name, tensor] : side) second.side.emplace_back(name, tensor.share());
    return second;
  }
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Returns the side input of this name. Throws Error if there is none.
  [[nodiscard]] const Tensor<Dev>& at(std::string_view name) const {
    const auto* found = find(name);
    check(found != nullptr, "the batch has no side input \"", name,
          "\"; its loader must provide it for this model");
    return *found;
  }
  [[nodiscard]] std::int64_t count_of(std::string_view term) const {
    for (const auto& [name, count] : counts)
      if (name == term) return count;
    fail("the batch does not say how much the loss term \"", term,
         "\" counts; its loader must provide this in MicroBatch::counts");
  }

 private:
  [[nodiscard]] const Tensor<Dev>* find(std::string_view name) const {
    for (const auto& [key, tensor] : side)
      if (key == name) return &tensor;
    return nullptr;
  }
};

namespace detail {
inline void check_index(std::int64_t index, std::int64_t micro_batches) {
  check(index >= 0 && index < micro_batches, "micro-batch ", index, " is not among the ",
        micro_batches, " of this step, over all replicas of the data axis; MicroBatch::index ",
        "counts from 0 in each step");
}
}  // namespace detail

/// The micro-batches of one replica in one step.
template <class Dev>
struct StepBatches {
  std::vector<MicroBatch<Dev>> batches;
  std::int64_t micro_batches = 0;  ///< number of micro-batches of all replicas
  std::int64_t samples = 0;        ///< number of samples of all replicas
  /// Whether all micro-batches of all replicas have the same shape and all replicas have equally many.
  bool same_shapes = false;

  [[nodiscard]] StepBatches share() const {
    StepBatches second{{}, micro_batches, samples, same_shapes};
    for (const auto& batch : batches) second.batches.push_back(batch.share());
    return second;
  }
};

/// Returns the micro-batches of a step that are assigned to one replica. all: the micro-batches of all replicas.
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
