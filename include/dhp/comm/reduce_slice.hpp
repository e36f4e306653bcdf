// reduce_slice reduces buffers on the host, always in rank order.
#pragma once

#include <dhp/comm/collective.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dhp::detail {

/// Adds two values; sums of integers wrap.
struct Sum {
  template <class A>
  [[nodiscard]] A operator()(A total, A value) const {
    if constexpr (std::is_integral_v<A>) {
      using Wrapping = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<Wrapping>(total) + static_cast<Wrapping>(value));
    } else {
      return total + value;
    }
  }
};

/// One buffer per rank, all of one element type.
using Inputs = std::vector<const std::byte*>;
using Outputs = std::vector<std::byte*>;

// Compilers vectorize a loop with a constant count at -O2, so constants are passed as types. Each constant adds another
// copy of the code, so only sums use them, and only for types that are summed often.

/// total[i] = combine(total[i], from[i])
template <class A, class T, class Count, class Combine>
void accumulate_run(A* __restrict total, const T* __restrict from, Count count, Combine combine) {
  for (std::int64_t at = 0; at < count; ++at)
    total[at] = combine(total[at], static_cast<A>(from[at]));
}

/// Reduces elements of type T.
template <class T>
class SliceOf {
 public:
  SliceOf(const Inputs& in, const Outputs& out) : in_(&in), out_(&out) {}

  template <class Combine>
  void reduce(std::int64_t first, std::int64_t last, Combine combine) const {
    constexpr std::int64_t run = 256, short_run = 32;
    if constexpr (std::is_same_v<Combine, Sum> && (!std::is_integral_v<T> || sizeof(T) == 8)) {
      // In place only if the output is input 0, 1 or none: a sum would overwrite a later input before reading it.
      const auto found = std::find(in_->begin(), in_->end(), out_->front());
      const int home = found == in_->end() ? -1 : static_cast<int>(found - in_->begin());
      const bool in_place = home < 2;
      const auto each = [&](std::int64_t begin, auto count) {
        if constexpr (!is_16_bit<T>)
          if (in_place) return run_in_place(home, begin, count, combine);
        run_apart<run>(begin, count, combine);
      };
      for (; last - first >= run; first += run)
        each(first, std::integral_constant<std::int64_t, run>());
      for (; last - first >= short_run; first += short_run)
        each(first, std::integral_constant<std::int64_t, short_run>());
      if (first < last) each(first, last - first);
    } else {
      for (; first < last; first += run)
        run_apart<run>(first, std::min(run, last - first), combine);
    }
  }

 private:
  [[nodiscard]] const T* in(std::size_t rank, std::int64_t begin) const {
    return reinterpret_cast<const T*>((*in_)[rank]) + begin;
  }
  [[nodiscard]] T* out(std::size_t copy, std::int64_t begin) const {
    return reinterpret_cast<T*>((*out_)[copy]) + begin;
  }
  void copy_out(const T* run, std::size_t first, std::int64_t begin, auto count) const {
    for (std::size_t copy = first; copy < out_->size(); ++copy)
      std::memcpy(out(copy, begin), run, as_size(count) * sizeof(T));
  }

  /// Reduces elements [begin, begin + count) in a buffer on the stack, then copies the result to all outputs.
  template <std::int64_t most, class Count, class Combine>
  void run_apart(std::int64_t begin, Count count, Combine combine) const {
    using A = std::conditional_t<is_16_bit<T>, float, T>;
    alignas(64) A total[as_size(most)];
    const T* first = in(0, begin);
    for (std::int64_t at = 0; at < count; ++at) total[at] = static_cast<A>(first[at]);
    for (std::size_t rank = 1; rank < in_->size(); ++rank)
      accumulate_run(total, in(rank, begin), count, combine);
    if constexpr (std::is_same_v<A, T>) {
      copy_out(total, 0, begin, count);
    } else {
      alignas(64) T rounded[as_size(most)];
      for (std::int64_t at = 0; at < count; ++at) rounded[at] = static_cast<T>(total[at]);
      copy_out(rounded, 0, begin, count);
    }
  }
  /// Reduces directly in the first output. home: the index of the input that shares its memory, 0 or 1; -1: none does.
  void run_in_place(int home, std::int64_t begin, auto count, auto combine) const {
    T* total = out(0, begin);
    const auto reversed = [combine](T value, T sum) { return combine(sum, value); };
    if (home == 1) accumulate_run(total, in(0, begin), count, reversed);
    else if (home != 0) std::memcpy(total, in(0, begin), as_size(count) * sizeof(T));
    for (std::size_t rank = home == 1 ? 2 : 1; rank < in_->size(); ++rank)
      accumulate_run(total, in(rank, begin), count, combine);
    copy_out(total, 1, begin, count);
  }

  const Inputs* in_;
  const Outputs* out_;
};

template <class T>
void reduce_slice_of(const Inputs& in, const Outputs& out, std::int64_t first, std::int64_t last,
                     Reduce reduce) {
  // max and min are NaN if any rank has a NaN.
  const auto max = [](auto total, auto value) {
    return value > total || value != value ? value : total;
  };
  const auto min = [](auto total, auto value) {
    return value < total || value != value ? value : total;
  };
  const SliceOf<T> slice(in, out);
  switch (reduce) {
    case Reduce::sum: return slice.reduce(first, last, Sum());
    case Reduce::max: return slice.reduce(first, last, max);
    case Reduce::min: return slice.reduce(first, last, min);
  }
}

/// Computes out[k][i] = in[0][i] op in[1][i] op ... for every k and each i in [first, last). An output may be an input.
/// 16-bit types accumulate in float and are rounded once.
inline void reduce_slice(DType dtype, const Inputs& in, const Outputs& out, std::int64_t first,
                         std::int64_t last, Reduce reduce) {
  visit_any(dtype, [&]<class T>(TypeTag<T>) { reduce_slice_of<T>(in, out, first, last, reduce); });
}

}  // namespace dhp::detail
