// Compares facts: texts that should be the same on all ranks. The most common value counts as intended; problems name
// the ranks with other values.
#pragma once

#include <dhp/comm/rank_list.hpp>

#include "finding.hpp"

#include <map>
#include <set>

namespace examples::doctor {

struct Fact {
  std::string name{};
  std::string value{};
  Verdict if_different = Verdict::warning;
  void pass(auto& fields) { fields(name, value, if_different); }
};

/// Returns a problem for each uncommon value of a fact. facts: each rank's facts, in the same order.
[[nodiscard]] inline std::vector<Problem> differences(const std::vector<std::vector<Fact>>& facts,
                                                      const std::vector<std::string>& hosts) {
  std::vector<Problem> problems;
  for (std::size_t fact = 0; fact < facts.front().size(); ++fact) {
    std::map<std::string, std::set<int>> ranks_with;
    for (std::size_t rank = 0; rank < facts.size(); ++rank) {
      const bool there = fact < facts[rank].size();
      ranks_with[there ? facts[rank][fact].value : "?"].insert(static_cast<int>(rank));
    }
    const auto common = std::max_element(
        ranks_with.begin(), ranks_with.end(), [](const auto& one, const auto& other) {
          return std::pair(one.second.size(), -*one.second.begin()) <
                 std::pair(other.second.size(), -*other.second.begin());
        });
    const auto& [name, meant, verdict] = facts.front()[fact];
    for (const auto& [value, ranks] : ranks_with) {
      if (value == common->first) continue;
      std::set<std::string> on;
      for (const int rank : ranks) on.insert(hosts[static_cast<std::size_t>(rank)]);
      const auto where = on.size() == 1 ? "host " + *on.begin() : dhp::concat(on.size(), " hosts");
      problems.push_back(
          {verdict, ranks,
           dhp::concat(dhp::rank_list(ranks), " (", where, "): ", name, " is ", value, ", while ",
                       dhp::rank_list(common->second),
                       common->second.size() == 1 ? " has " : " have ", common->first,
                       verdict == Verdict::failed ? "; install and start the same on all hosts"
                                                  : "; is that intended?")});
    }
  }
  return problems;
}

}  // namespace examples::doctor
