// The arithmetic of a reduction on the host, always in the order of the ranks.
#pragma once

#include <dhp/comm/collective.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dhp::comm {

/// Sums of integers wrap.
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

// A constant count, as a type, makes loops that compilers vectorise at -O2.

/// total[i] = combine(total[i], from[i])
template <class A, class T, class Count, class Combine>
void fold_run(A* __restrict total, const T* __restrict from, Count count, Combine combine) {
  for (std::int64_t at = 0; at < count; ++at)
    total[at] = combine(total[at], static_cast<A>(from[at]));
}

/// Elements [begin, begin + count) of reduce_slice, which are made apart.
template <std::int64_t most, class T, class Count, class Combine>
void reduce_run(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t begin,
                Count count, Combine combine) {
  using A = std::conditional_t<is_16_bit<T>, float, T>;
  alignas(64) A total[most];
  const T* first = in[0] + begin;
  for (std::int64_t at = 0; at < count; ++at) total[at] = static_cast<A>(first[at]);
  for (std::size_t rank = 1; rank < in.size(); ++rank)
    fold_run(total, in[rank] + begin, count, combine);
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  if constexpr (std::is_same_v<A, T>) {
    for (T* to : out) std::memcpy(to + begin, total, bytes);
  } else {
    alignas(64) T rounded[most];
    for (std::int64_t at = 0; at < count; ++at) rounded[at] = static_cast<T>(total[at]);
    for (T* to : out) std::memcpy(to + begin, rounded, bytes);
  }
}
/// The same, made in the first output. home: which input this is, 0 or 1; -1: none.
template <class T, class Count, class Combine>
void reduce_run_in_place(const std::vector<const T*>& in, const std::vector<T*>& out, int home,
                         std::int64_t begin, Count count, Combine combine) {
  T* total = out[0] + begin;
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  const auto reversed = [combine](T value, T sum) { return combine(sum, value); };
  if (home == 1) fold_run(total, in[0] + begin, count, reversed);
  else if (home != 0) std::memcpy(total, in[0] + begin, bytes);
  for (std::size_t rank = home == 1 ? 2 : 1; rank < in.size(); ++rank)
    fold_run(total, in[rank] + begin, count, combine);
  for (std::size_t copy = 1; copy < out.size(); ++copy)
    std::memcpy(out[copy] + begin, total, bytes);
}
template <class T, class Combine>
void reduce_runs(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t first,
                 std::int64_t last, Combine combine) {
  constexpr std::int64_t run = 256, short_run = 32;
  // A later input is read when there is a sum of earlier ones already.
  const auto found = std::find(in.begin(), in.end(), out[0]);
  const int home = found == in.end() ? -1 : static_cast<int>(found - in.begin());
  const bool in_place = home < 2;
  const auto each = [&](std::int64_t begin, auto count) {
    if constexpr (!is_16_bit<T>)
      if (in_place) return reduce_run_in_place(in, out, home, begin, count, combine);
    reduce_run<run>(in, out, begin, count, combine);
  };
  for (; last - first >= run; first += run)
    each(first, std::integral_constant<std::int64_t, run>());
  for (; last - first >= short_run; first += short_run)
    each(first, std::integral_constant<std::int64_t, short_run>());
  if (first < last) each(first, last - first);
}

/// out[k][i] = in[0][i] op in[1][i] op ... for every k and each i in [first, last). An output may be an input. 16-bit
/// types accumulate in float, and are rounded once.
template <class T>
void reduce_slice(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t first,
                  std::int64_t last, Reduce reduce) {
  // A NaN of any rank is the maximum and the minimum.
  const auto max = [](auto total, auto value) {
    return value > total || value != value ? value : total;
  };
  const auto min = [](auto total, auto value) {
    return value < total || value != value ? value : total;
  };
  switch (reduce) {
    case Reduce::sum: return reduce_runs(in, out, first, last, Sum());
    case Reduce::max: return reduce_runs(in, out, first, last, max);
    case Reduce::min: return reduce_runs(in, out, first, last, min);
  }
}

}  // namespace dhp::comm
