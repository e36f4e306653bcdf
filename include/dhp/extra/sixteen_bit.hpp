// SixteenBit: sends gradients as bf16, which has f32's range and 8 bits of precision. Error feedback covers the
// rounding of this replica's gradient. The sum is rounded once more, without feedback.
#pragma once

#include <dhp/extra/compressed_reducer.hpp>

namespace dhp {

struct SixteenBit {};

namespace detail {
template <class Dev>
class SixteenBitCompressor {
 public:
  SixteenBitCompressor(Dev& dev, const CompressedGradients<Dev>& gradients, int, std::uint64_t,
                       SixteenBit) {
    std::int64_t count = 0;
    for (const auto& gradient : gradients) count += gradient.sum.count();
    rounded_ = Tensor<Dev>::persistent(dev, DType::bf16, {count});
  }

  /// Runs one all-reduce of 2 bytes per element.
  void sum(Dev& dev, Comm<Dev>& group, const CompressedGradients<Dev>& gradients) {
    for_each(gradients, [&](const CompressedGradient<Dev>& gradient, View<Dev> rounded) {
      cast(dev, gradient.unsent, rounded);
      axpy(dev, -1, rounded, gradient.unsent);
    });
    group.all_reduce(dev, rounded_.mut()).wait();
    for_each(gradients, [&](const CompressedGradient<Dev>& gradient, View<Dev> rounded) {
      cast(dev, rounded, gradient.sum);
    });
  }

 private:
  void for_each(const CompressedGradients<Dev>& gradients, auto body) {
    std::int64_t first = 0;
    for (const auto& gradient : gradients) {
      const auto last = first + gradient.sum.count();
      body(gradient, rounded_.mut().slice(first, last).as(gradient.sum.shape()));
      first = last;
    }
  }

  Tensor<Dev> rounded_;
};
}  // namespace detail

template <class Dev>
[[nodiscard]] CompressedReducer<Dev, detail::SixteenBitCompressor<Dev>> make_reducer(
    Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, SixteenBit options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
