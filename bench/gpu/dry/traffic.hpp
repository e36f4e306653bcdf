// Finds the bytes that a kernel of dhp moves from its arguments: each tensor that it points to is read or written once.
// A kernel that touches less of a tensor, or updates it in place, has an overload here.
#pragma once

#include <bench/gpu/dry/ledger.hpp>
#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/kernels.hpp>

#include <cstring>
#include <string>
#include <type_traits>

namespace dry {

/// Returns a readable name, such as "MapColumns<8, BatchNormApply<f16, true>>".
[[nodiscard]] std::string kernel_name(const char* mangled);

/// Returns the bytes behind pointers. Two pointers into one tensor count as one pass, two equal ones as an update in
/// place.
[[nodiscard]] double bytes_of_pointers(const std::uintptr_t* words, std::size_t count);

template <class Kernel>
[[nodiscard]] double bytes_of(const Kernel& kernel) {
  static_assert(std::is_trivially_destructible_v<Kernel>);
  // Padding between members may look like an address, so it is masked.
  constexpr auto count = sizeof(Kernel) / sizeof(std::uintptr_t) + 1;
  std::uintptr_t words[count] = {}, members[count];
  std::memset(members, 0xff, sizeof members);
  if constexpr (std::is_trivially_copyable_v<Kernel>)
    __builtin_clear_padding(reinterpret_cast<Kernel*>(members));
  std::memcpy(words, static_cast<const void*>(&kernel), sizeof(Kernel));
  for (std::size_t at = 0; at < count; ++at) words[at] &= members[at];
  return bytes_of_pointers(words, count);
}

template <class Word, int words>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::MoveRows<Word, words>& kernel) {
  const double indices = kernel.index == nullptr ? 0 : 4;
  return static_cast<double>(kernel.rows) *
         (2 * static_cast<double>(kernel.units) * sizeof(Word) * words + indices);
}
template <class T>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::ClearPadding<T>& kernel) {
  double rows = static_cast<double>(kernel.rows);
  for (std::int64_t n = 0; n < kernel.samples; ++n) rows -= kernel.lengths[n];
  return rows * static_cast<double>(kernel.columns) * kernel.count * sizeof(T);
}

template <class T>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::Rotary<T>& kernel) {  // updates in place
  return 4 * static_cast<double>(kernel.rows * kernel.half) * kernel.heads * sizeof(T);
}

template <class F, int width, class Y, class... X>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::Map<F, width, Y, X...>& kernel) {
  return static_cast<double>(kernel.count) *
         static_cast<double>(sizeof(Y) + (std::size_t{0} + ... + sizeof(X)));
}
template <class T>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::AddBoth<T>& kernel) {
  return 3 * static_cast<double>(kernel.one.count + kernel.other.count) * sizeof(T);
}

// Kernels over all parameters have a table of addresses; gradients have as many elements as parameters.
template <class A>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::SquareTiles<A>& kernel) {
  return ledger().block_bytes_at(kernel.source.flat);
}
template <class T, class Rule>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::UpdateWeights<T, Rule>& kernel) {
  using A = dhp::Accumulator<T>;
  const double flat = ledger().block_bytes_at(kernel.in.gradient);
  const int updated = (kernel.in.m != nullptr ? 2 : 0) + (kernel.in.v != nullptr ? 2 : 0) +
                      (kernel.in.masters != nullptr ? 2 : 0);
  const int values = kernel.in.masters == nullptr ? 2 : 1;  // reads and writes, or only writes
  return flat * (1 + updated) + flat / sizeof(A) * sizeof(T) * values;
}
template <class T>
[[nodiscard]] double bytes_of(
    const dhp::detail::cuda::UpdateWeights<T, dhp::detail::MovingAverageRule>& kernel) {
  double elements = 0;
  for (std::int64_t at = 0; at < kernel.pieces.tile_count; ++at)
    elements += static_cast<double>(kernel.pieces.tiles[at].last - kernel.pieces.tiles[at].first);
  return 3 * elements * sizeof(dhp::Accumulator<T>);
}
template <class A>
[[nodiscard]] double bytes_of(const dhp::detail::cuda::LambSquares<A>& kernel) {
  return 4 * ledger().block_bytes_at(kernel.gradient);  // gradient, m, v and weights
}

/// Returns the FLOP of a kernel, if known: those of dhp's own attention, over the pairs of tokens.
template <class Kernel>
[[nodiscard]] double flop_of(const Kernel&) {
  return 0;
}
[[nodiscard]] inline double attention_flop(const dhp::detail::cuda::AttentionPlace& place,
                                           int products) {
  const auto pairs = static_cast<double>(place.rows) * static_cast<double>(place.max_length) *
                     (place.causal ? 0.5 : 1);
  return 2 * products * static_cast<double>(place.size) * place.heads * pairs *
         ledger().attention_pairs;
}
template <class T>
[[nodiscard]] double flop_of(const dhp::detail::cuda::AttentionForward<T>& kernel) {
  return attention_flop(kernel.place, 2);
}
template <class T, bool of_keys>
[[nodiscard]] double flop_of(const dhp::detail::cuda::AttentionGradient<T, of_keys>& kernel) {
  return attention_flop(kernel.place, of_keys ? 4 : 3);
}
template <class T, int width>
[[nodiscard]] double flop_of(const dhp::detail::cuda::FlashAttentionForward<T, width>& kernel) {
  return attention_flop(kernel.place, 2);
}
template <class T, int width, bool of_keys>
[[nodiscard]] double flop_of(
    const dhp::detail::cuda::FlashAttentionGradient<T, width, of_keys>& kernel) {
  return attention_flop(kernel.place, of_keys ? 4 : 3);
}

}  // namespace dry
