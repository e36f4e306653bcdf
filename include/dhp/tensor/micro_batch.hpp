// MicroBatch: the unit of everything. Micro-batch k of a step holds the global samples [k*b, (k+1)*b);
// the last one of an epoch may be shorter. A replica is assigned whole micro-batches, so every number of
// a run is a function of its micro-batches, never of how they were spread. StepBatches: those of one
// replica in one step, with what all replicas know of the step beforehand.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
struct MicroBatch {
  std::int64_t index = 0;         ///< k: its number in the step, over all replicas
  std::int64_t first_sample = 0;  ///< global number of its first sample within the step
  std::int64_t samples = 0;       ///< N
  Tensor<Dev> input;  ///< what the first layer gets: images [N, H, W, C]; none for tokens
  /// What any stage may read beside its activation: "labels", "token_ids", ...
  std::vector<std::pair<std::string, Tensor<Dev>>> side;
  /// How many tokens or samples each term of the loss counts here, by term; known on the host.
  std::vector<std::pair<std::string, std::int64_t>> counts;

  /// A second owner of the same tensors.
  [[nodiscard]] MicroBatch share() const {
    MicroBatch second{.index = index,
                      .first_sample = first_sample,
                      .samples = samples,
                      .input = input.share(),
                      .side = {},
                      .counts = counts};
    for (const auto& [name, tensor] : side) second.side.emplace_back(name, tensor.share());
    return second;
  }
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The side input of that name; throws where there is none.
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
  /// A promise: all micro-batches of all replicas have the same shapes, each replica has as many, and so it
  /// is in every other step that is promised.
  bool same_shapes = false;

  /// A second owner of the same tensors.
  [[nodiscard]] StepBatches share() const {
    StepBatches second{.batches = {},
                       .micro_batches = micro_batches,
                       .samples = samples,
                       .same_shapes = same_shapes};
    for (const auto& batch : batches) second.batches.push_back(batch.share());
    return second;
  }
};

/// The part of `all` micro-batches of a step that one of `replicas` is assigned.
template <class Dev>
[[nodiscard]] StepBatches<Dev> assigned(std::span<const MicroBatch<Dev>> all, int replica,
                                        int replicas) {
  StepBatches<Dev> mine;
  mine.micro_batches = static_cast<std::int64_t>(all.size());
  for (const auto& batch : all) mine.samples += batch.samples;
  const auto part = part_of(mine.micro_batches, replicas, replica);
  for (auto at = part.first; at < part.last; ++at)
    mine.batches.push_back(all[static_cast<std::size_t>(at)].share());
  return mine;
}

}  // namespace dhp
