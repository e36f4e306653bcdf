// MicroBatch: the unit of everything. Micro-batch k of a step holds the global samples [k*b, (k+1)*b);
// the last one of an epoch may be shorter. Replicas are dealt whole micro-batches, so every number of a
// run is a function of its micro-batches, never of how they were spread.
#pragma once

#include <dhp/tensor/tensor.hpp>

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

}  // namespace dhp
