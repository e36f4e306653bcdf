// The ranks of a group's parts, as in MPI_Comm_split: by color, ordered by key, then by rank; a negative color:
// alone.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace dhp::detail {

[[nodiscard]] inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

struct ColorKey {
  std::int32_t color = 0, key = 0;
};

/// The part of rank `rank`, as ranks of the group, in their new order. color_keys: by rank.
[[nodiscard]] inline std::vector<int> part_with(int rank, const std::vector<ColorKey>& color_keys) {
  const auto color_key = [&](int of) { return color_keys[static_cast<std::size_t>(of)]; };
  const auto earlier = [&](std::int32_t key, int than) { return key < color_key(than).key; };
  std::vector<int> part;
  for (int other = 0; other < static_cast<int>(color_keys.size()); ++other)
    if (other == rank ||
        (color_key(rank).color >= 0 && color_key(other).color == color_key(rank).color))
      part.insert(std::upper_bound(part.begin(), part.end(), color_key(other).key, earlier), other);
  return part;
}

}  // namespace dhp::detail
