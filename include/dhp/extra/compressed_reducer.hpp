// CompressedReducer: the base of reducers that compress gradients. Matrices are compressed with error feedback: the
// compression error of a step is added to the next gradient (Seide et al. 2014; Stich et al. 2018, "Sparsified SGD with
// memory"). Vectors and running statistics are small, so their sums are not compressed.
#pragma once

#include <dhp/extra/packed_sum.hpp>
#include <dhp/ops/compression.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/parallel/reducer.hpp>
#include <dhp/parallel/trainable.hpp>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
/// A gradient to compress, as a matrix whose rows are the first dim of the parameter.
template <class Dev>
struct CompressedGradient {
  std::uint32_t use = 0;    ///< the parameter's random stream
  View<Dev> sum{};          ///< [rows, columns]: output, the sum over replicas
  View<Dev> unsent{};       ///< [rows, columns]: gradient plus memory; later the part not sent
  ConstView<Dev> memory{};  ///< [rows, columns]: the error of earlier steps
};
/// Copies `made` to `kept` unless the step was skipped. state: the StepState with the step's decision; empty: applied.
template <class Dev>
void keep_made(Dev& dev, ConstView<Dev> state, ConstView<Dev> result, View<Dev> kept) {
  if (state) keep_if_applied(dev, state, result, kept);
  else copy(dev, result, kept);
}
}  // namespace detail

template <class Dev>
using CompressedGradients = std::vector<detail::CompressedGradient<Dev>>;

/// The constructor Compressor(dev, gradients, replicas, seed, options) allocates for the gradients' shapes. Its
/// sum(dev, group, gradients) must run the same collectives on every replica. An optional begin(dev, state) learns
/// whether the previous step was skipped. One replica exchanges and compresses nothing. Options may exclude matrices.
template <class Dev, class Compressor>
class CompressedReducer {
 public:
  CompressedReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, const auto& options)
      : dev_(dev),
        group_(std::move(group)),
        gradients_(gradients_of(store, options)),
        compressor_(dev, gradients_, group_.size(), store.options().seed, options) {}

  /// Stores the previous step's error in the memory, unless that step was skipped.
  void begin(const Step<Dev>& step) {
    if (gradients_.empty()) return;
    detail::keep_made<Dev>(dev_, step.state, unsent_, memory_.mut());
    if constexpr (requires { compressor_.begin(dev_, step.state); })
      compressor_.begin(dev_, step.state);
  }
  void ready(Range) {}
  void finish() {
    if (group_.size() == 1) return;
    const auto scope = dev_.scope("compressed sums");
    whole_->sum(dev_, group_);
    whole_->put(dev_);
    if (gradients_.empty()) return;
    for (auto& gradient : gradients_) add(dev_, gradient.sum, gradient.memory, gradient.unsent);
    compressor_.sum(dev_, group_, gradients_);
  }

  [[nodiscard]] const CompressedGradients<Dev>& gradients() const { return gradients_; }

 private:
  [[nodiscard]] CompressedGradients<Dev> gradients_of(ParameterStore<Dev>& store,
                                                      const auto& options) {
    detail::check_not_sharded(store);
    check(!store.options().deterministic,
          "exact sums have no compressed form: a reducer that compresses needs sums in "
          "floating point");
    if (group_.size() == 1) return {};
    CompressedGradients<Dev> result;
    std::vector<View<Dev>> whole;
    std::int64_t remembered = 0;
    for (const auto& parameter : store.parameters()) {
      const auto& spec = parameter->spec;
      if (spec.frozen) continue;
      const auto shape = spec.local_shape();
      const auto count = shape.count();
      bool compressed = !spec.buffer && shape.rank() > 1 && count > 0;
      const Shape matrix = compressed ? Shape{shape[0], count / shape[0]} : Shape{count};
      if constexpr (requires { options.compresses(matrix); })
        compressed = compressed && options.compresses(matrix);
      const auto gradient = store.gradients(parameter->range).as(matrix);
      if (compressed) {
        result.push_back({parameter->use, gradient});
        remembered += detail::padded_segment(count);
      } else {
        whole.push_back(gradient);
      }
    }
    const auto type = store.accumulation();
    whole_.emplace(dev_, std::move(whole), type);
    memory_ = Tensor<Dev>::persistent(dev_, type, {remembered});
    unsent_ = Tensor<Dev>::persistent(dev_, type, {remembered});
    std::int64_t first = 0;
    for (auto& gradient : result) {
      const auto last = first + gradient.sum.count();
      gradient.unsent = unsent_.mut().slice(first, last).as(gradient.sum.shape());
      gradient.memory = memory_.view().slice(first, last).as(gradient.sum.shape());
      first += detail::padded_segment(gradient.sum.count());
    }
    return result;
  }
  Dev& dev_;
  Comm<Dev> group_;
  std::optional<detail::PackedSum<Dev>> whole_;  // uncompressed gradients
  Tensor<Dev> memory_, unsent_;
  CompressedGradients<Dev> gradients_;
  Compressor compressor_;
};

}  // namespace dhp
