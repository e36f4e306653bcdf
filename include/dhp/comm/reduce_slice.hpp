// The arithmetic of a reduction on the host: always in the order of the ranks, so that its bits do not depend
// on who came first.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

namespace dhp::detail {

/// total[i] = total[i] op from[i]. 16-bit types accumulate in float. Sums of integers wrap. A NaN of any
/// rank is the maximum and the minimum.
template <class A, class T>
void combine(A* total, const T* from, std::int64_t count, Reduce reduce) {
  switch (reduce) {
    case Reduce::sum:
      for (std::int64_t at = 0; at < count; ++at) {
        if constexpr (std::is_integral_v<A>) {
          using Wrapping = std::make_unsigned_t<A>;
          total[at] =
              static_cast<A>(static_cast<Wrapping>(total[at]) + static_cast<Wrapping>(from[at]));
        } else {
          total[at] += static_cast<A>(from[at]);
        }
      }
      break;
    case Reduce::max:
      for (std::int64_t at = 0; at < count; ++at) {
        const A value = static_cast<A>(from[at]);
        total[at] = value > total[at] || value != value ? value : total[at];
      }
      break;
    case Reduce::min:
      for (std::int64_t at = 0; at < count; ++at) {
        const A value = static_cast<A>(from[at]);
        total[at] = value < total[at] || value != value ? value : total[at];
      }
      break;
  }
}

/// out[k][i] = in[0][i] op in[1][i] op ... for every k and each i in [first, last). An output may be an input.
template <class T>
void reduce_slice(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t first,
                  std::int64_t last, Reduce reduce) {
  using A = std::conditional_t<is_16_bit<T>, float, T>;
  constexpr std::int64_t block = 1024;  // stays in the first-level cache
  alignas(64) A total[block];
  for (std::int64_t begin = first; begin < last; begin += block) {
    const std::int64_t count = std::min(block, last - begin);
    const T* start = in[0] + begin;
    for (std::int64_t at = 0; at < count; ++at) total[at] = static_cast<A>(start[at]);
    for (std::size_t rank = 1; rank < in.size(); ++rank)
      combine(total, in[rank] + begin, count, reduce);
    for (T* to : out) {
      if constexpr (std::is_same_v<A, T>) {
        std::memcpy(to + begin, total, static_cast<std::size_t>(count) * sizeof(T));
      } else if (to == out[0]) {
        for (std::int64_t at = 0; at < count; ++at) to[begin + at] = static_cast<T>(total[at]);
      } else {  // rounded once
        std::memcpy(to + begin, out[0] + begin, static_cast<std::size_t>(count) * sizeof(T));
      }
    }
  }
}

}  // namespace dhp::detail
