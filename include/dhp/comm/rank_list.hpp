// rank_list writes the numbers of ranks in words, for messages.
#pragma once

#include <dhp/core/text.hpp>

#include <set>
#include <string>

namespace dhp {

/// Returns ranks as words: "rank 2", "ranks 0, 1 and 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 120 more".
[[nodiscard]] inline std::string rank_list(const std::set<int>& ranks) {
  constexpr std::size_t longest = 8;
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t at = 0;
  for (const int rank : ranks) {
    if (at == longest) return concat(text, " and ", ranks.size() - longest, " more");
    const bool last = at + 1 == ranks.size();
    text += concat(at == 0 ? "" : last ? " and " : ", ", rank);
    ++at;
  }
  return text;
}

}  // namespace dhp
