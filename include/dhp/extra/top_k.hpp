// TopK: each replica sends the largest elements of each matrix as indices and values (Stich et al. 2018; Lin et al.
// 2018, "Deep gradient compression", here without momentum correction). The rest stays in the error memory.
#pragma once

#include <dhp/extra/compressed_reducer.hpp>
#include <dhp/ops/rows.hpp>

#include <algorithm>
#include <cmath>

namespace dhp {

struct TopK {
  /// Fraction of a matrix's elements that a replica sends per step. At least one element is sent.
  double share = 0.01;

  [[nodiscard]] std::int64_t sent_of(std::int64_t count) const {
    const auto wanted = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count)));
    return std::clamp<std::int64_t>(wanted, 1, count);
  }
};

namespace detail {
template <class Dev>
class TopKCompressor {
 public:
  TopKCompressor(Dev& dev, const CompressedGradients<Dev>& gradients, int ranks, std::uint64_t,
                 const TopK& options)
      : options_(options) {
    check(options.share > 0 && options.share <= 1, "top-k sends a share between 0 and 1, not ",
          options.share);
    if (gradients.empty()) return;
    for (const auto& gradient : gradients) sent_ += options.sent_of(gradient.sum.count());
    const auto type = gradients.front().sum.dtype();
    indices_ = Tensor<Dev>::persistent(dev, DType::i32, {sent_});
    values_ = Tensor<Dev>::persistent(dev, type, {sent_});
    all_indices_ = Tensor<Dev>::persistent(dev, DType::i32, {ranks * sent_});
    all_values_ = Tensor<Dev>::persistent(dev, type, {ranks * sent_});
  }

  /// Runs two all-gathers: one i32 and one value per sent element.
  void sum(Dev& dev, Comm<Dev>& group, const CompressedGradients<Dev>& gradients) {
    for_each(gradients, 0, [&](const CompressedGradient<Dev>& gradient, Range part) {
      take_largest(dev, gradient.unsent, indices_.mut().slice(part), values_.mut().slice(part));
      dev.fill_zero(gradient.sum.bytes(), gradient.sum.size_bytes());
    });
    group.all_gather(dev, indices_, all_indices_.mut()).wait();
    group.all_gather(dev, values_, all_values_.mut()).wait();
    for (int replica = 0; replica < group.size(); ++replica)
      for_each(gradients, replica * sent_,
               [&](const CompressedGradient<Dev>& gradient, Range part) {
                 scatter_add_rows(dev, all_values_.view().slice(part).as({part.size(), 1}),
                                  all_indices_.view().slice(part),
                                  gradient.sum.as({gradient.sum.count(), 1}));
               });
  }

 private:
  /// Calls body(gradient, range of its sent elements) for each gradient; the list of sent elements begins at `first`.
  void for_each(const CompressedGradients<Dev>& gradients, std::int64_t first, auto body) {
    for (const auto& gradient : gradients) {
      const auto last = first + options_.sent_of(gradient.sum.count());
      body(gradient, Range{first, last});
      first = last;
    }
  }

  TopK options_;
  std::int64_t sent_ = 0;
  Tensor<Dev> indices_, values_, all_indices_, all_values_;
};
}  // namespace detail

template <class Dev>
[[nodiscard]] CompressedReducer<Dev, detail::TopKCompressor<Dev>> make_reducer(
    Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, const TopK& options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
