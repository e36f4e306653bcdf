// OneBit: sends the sign of each element and one magnitude per matrix (Seide et al. 2014, "1-bit SGD"). The mean
// magnitude minimizes the error and makes error feedback converge (Karimireddy et al. 2019, "Error feedback fixes
// SignSGD").
#pragma once

#include <dhp/extra/compressed_reducer.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

struct OneBit {};

namespace detail {
template <class Dev>
class OneBitCompressor {
 public:
  OneBitCompressor(Dev& dev, const CompressedGradients<Dev>& gradients, int ranks, std::uint64_t,
                   OneBit) {
    for (const auto& gradient : gradients) bytes_ += sign_bytes(gradient.sum.count());
    matrices_ = std::ssize(gradients);
    bits_ = Tensor<Dev>::persistent(dev, DType::u8, {bytes_});
    magnitudes_ = Tensor<Dev>::persistent(dev, DType::f64, {matrices_});
    all_bits_ = Tensor<Dev>::persistent(dev, DType::u8, {ranks * bytes_});
    all_magnitudes_ = Tensor<Dev>::persistent(dev, DType::f64, {ranks * matrices_});
  }

  /// Runs two all-gathers: one bit per element, padded to bytes per matrix; and one f64 per matrix.
  void sum(Dev& dev, Comm<Dev>& group, const CompressedGradients<Dev>& gradients) {
    for_each(gradients, 0, [&](const CompressedGradient<Dev>& gradient, Range bytes, auto number) {
      const auto bits = bits_.mut().slice(bytes);
      const auto magnitude = magnitudes_.mut().slice(number, number + 1);
      pack_signs(dev, gradient.unsent, bits);
      sum_of_magnitudes(dev, gradient.unsent, magnitude);
      add_signs(dev, bits, magnitude, -1, gradient.unsent);
      dev.fill_zero(gradient.sum.bytes(), gradient.sum.size_bytes());
    });
    group.all_gather(dev, bits_, all_bits_.mut()).wait();
    group.all_gather(dev, magnitudes_, all_magnitudes_.mut()).wait();
    for (int replica = 0; replica < group.size(); ++replica)
      for_each(gradients, replica,
               [&](const CompressedGradient<Dev>& gradient, Range bytes, auto number) {
                 add_signs(dev, all_bits_.view().slice(bytes),
                           all_magnitudes_.view().slice(number, number + 1), 1, gradient.sum);
               });
  }

 private:
  /// Calls body(gradient, range of its bytes, index of its magnitude) for each gradient of `replica`.
  void for_each(const CompressedGradients<Dev>& gradients, int replica, auto body) {
    auto first = replica * bytes_;
    auto number = replica * matrices_;
    for (const auto& gradient : gradients) {
      const auto last = first + sign_bytes(gradient.sum.count());
      body(gradient, Range{first, last}, number++);
      first = last;
    }
  }

  std::int64_t bytes_ = 0, matrices_ = 0;
  Tensor<Dev> bits_, magnitudes_, all_bits_, all_magnitudes_;
};
}  // namespace detail

template <class Dev>
[[nodiscard]] CompressedReducer<Dev, detail::OneBitCompressor<Dev>> make_reducer(
    Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, OneBit options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
