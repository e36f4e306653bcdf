// Who is in which part when a group is split, as MPI_Comm_split has it: ranks of one color form a group, in the order of
// their keys, then of their ranks; a negative color joins nobody.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dhp::comm {

struct SplitWish {
  std::int32_t color = 0, key = 0;
};

/// The part of rank `rank`: ranks of the group that is split, in their new order. wishes: by rank.
[[nodiscard]] inline std::vector<int> part_with(int rank, const std::vector<SplitWish>& wishes) {
  const auto wish = [&](int of) { return wishes[static_cast<std::size_t>(of)]; };
  std::vector<int> part;
  for (int other = 0; other < static_cast<int>(wishes.size()); ++other)
    if (other == rank || (wish(rank).color >= 0 && wish(other).color == wish(rank).color))
      part.push_back(other);
  std::stable_sort(part.begin(), part.end(),
                   [&](int left, int right) { return wish(left).key < wish(right).key; });
  return part;
}

}  // namespace dhp::comm
