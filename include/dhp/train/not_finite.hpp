// NotFinite: the error of a step whose loss or gradient is not finite. All ranks throw it with the same message, which
// names the layer and the rank where this began.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/nn/layer_error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

namespace dhp {

/// Thrown on all ranks. No weight has changed, and the run may go on from a checkpoint.
class NotFinite : public Error {
 public:
  using Error::Error;
};

namespace detail {
/// A rank's first result that is not finite.
struct NonFiniteResult {
  std::int64_t checked = 0;  ///< number of results before it
  std::string sentence{};    ///< empty: the rank has none
  void pass(Fields& fields) { fields(checked, sentence); }

  [[nodiscard]] static NonFiniteResult of(const FirstNonFinite& first, std::int64_t micro_batch) {
    if (first.layer.empty()) return {};
    return {first.checked, concat("the ", first.what, " of layer ", first.layer,
                                  " is not finite (micro-batch ", micro_batch, ")")};
  }
};
/// Returns the sentence of the rank with the fewest results before its own; empty if no rank has one. Collective.
template <class Dev>
[[nodiscard]] std::string earliest_of(Dev& dev, Comm<Dev>& world, NonFiniteResult own) {
  if (world.size() > 1 && !own.sentence.empty()) own.sentence += concat(" on rank ", world.rank());
  const auto all = gather_values(dev, world, own);
  const auto order = [](const auto& of) { return std::pair(of.sentence.empty(), of.checked); };
  return std::min_element(
             all.begin(), all.end(),
             [&](const auto& one, const auto& other) { return order(one) < order(other); })
      ->sentence;
}
/// The cause if all results of layers are finite.
[[nodiscard]] inline std::string cause_outside_layers(bool loss_is_bad, bool deterministic) {
  if (loss_is_bad)
    return "the last layer's output is finite: the loss itself overflowed; a lower learning rate "
           "may help";
  return concat("every layer's output and input gradient is finite: a weight gradient ",
                deterministic ? "left the range of exact sums (2^18); clip, lower the rate, or sum "
                                "in floating point"
                              : "overflowed; a lower learning rate may help");
}
}  // namespace detail

}  // namespace dhp
