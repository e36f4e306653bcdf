// The arithmetic of a reduction on the host: always in the order of the ranks, so that its bits do not depend
// on who came first.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dhp::detail {

/// Two values of a reduction, made one. Sums of integers wrap. A NaN of any rank is the maximum and the minimum.
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
struct Maximum {
  template <class A>
  [[nodiscard]] A operator()(A total, A value) const {
    return value > total || value != value ? value : total;
  }
};
struct Minimum {
  template <class A>
  [[nodiscard]] A operator()(A total, A value) const {
    return value < total || value != value ? value : total;
  }
};

/// Elements [begin, begin + count) of reduce_slice. Every count of a type of its own, so that a constant one makes loops
/// that compilers turn into vectors without being asked for more than -O2.
template <std::int64_t most, class T, class Combine, class Count>
void reduce_run(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t begin,
                Count count, Combine combine) {
  using A = std::conditional_t<is_16_bit<T>, float, T>;
  alignas(64) A total[most];
  const T* first = in[0] + begin;
  for (std::int64_t at = 0; at < count; ++at) total[at] = static_cast<A>(first[at]);
  for (std::size_t rank = 1; rank < in.size(); ++rank) {
    const T* from = in[rank] + begin;
    for (std::int64_t at = 0; at < count; ++at)
      total[at] = combine(total[at], static_cast<A>(from[at]));
  }
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  if constexpr (std::is_same_v<A, T>) {
    for (T* to : out) std::memcpy(to + begin, total, bytes);
  } else {
    alignas(64) T rounded[most];
    for (std::int64_t at = 0; at < count; ++at) rounded[at] = static_cast<T>(total[at]);
    for (T* to : out) std::memcpy(to + begin, rounded, bytes);
  }
}
template <class T, class Combine>
void reduce_runs(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t first,
                 std::int64_t last, Combine combine) {
  constexpr std::int64_t run = 64;
  for (; last - first >= run; first += run)
    reduce_run<run>(in, out, first, std::integral_constant<std::int64_t, run>(), combine);
  if (first < last) reduce_run<run>(in, out, first, last - first, combine);
}

/// out[k][i] = in[0][i] op in[1][i] op ... for every k and each i in [first, last). An output may be an input. 16-bit
/// types accumulate in float, and are rounded once.
template <class T>
void reduce_slice(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t first,
                  std::int64_t last, Reduce reduce) {
  switch (reduce) {
    case Reduce::sum: return reduce_runs(in, out, first, last, Sum());
    case Reduce::max: return reduce_runs(in, out, first, last, Maximum());
    case Reduce::min: return reduce_runs(in, out, first, last, Minimum());
  }
}

}  // namespace dhp::detail
