// Finds the ranks that differ from the others. Each rate is compared with the median of the other rates of its kind:
// neither one slow rank nor a cluster with two kinds of hosts shifts that median. Facts are texts that should be the
// same on all ranks: the most common value counts as intended, and problems name the ranks with other values.
#pragma once

#include <dhp/comm/rank_list.hpp>

#include "finding.hpp"

#include <map>
#include <set>

namespace examples::doctor {

/// A rate is a warning, or a failure, if the median is this many times larger.
struct Limit {
  double warning = 0;
  double failed = 0;

  [[nodiscard]] Verdict judge(double ratio) const {
    if (ratio > failed) return Verdict::failed;
    return ratio > warning ? Verdict::warning : Verdict::ok;
  }
};

/// Returns the median of the known values; not_known if there are none.
[[nodiscard]] inline double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return not_known;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Slowdown {
  std::size_t index = 0;
  double others = 0;  ///< median of the other rates of its kind
  double ratio = 1;   ///< others / own rate; infinite for a rate of 0
};

/// Returns one entry for each known rate that has others of its kind.
[[nodiscard]] inline std::vector<Slowdown> slowdowns(const std::vector<double>& rates,
                                                     const std::vector<std::string>& kinds) {
  std::map<std::string, std::vector<double>> sorted;  // rates by kind
  for (std::size_t one = 0; one < rates.size(); ++one)
    if (!std::isnan(rates[one])) sorted[kinds[one]].push_back(rates[one]);
  for (auto& [kind, values] : sorted) std::sort(values.begin(), values.end());
  std::vector<Slowdown> found;
  for (std::size_t one = 0; one < rates.size(); ++one) {
    const auto& values = sorted[kinds[one]];
    if (std::isnan(rates[one]) || values.size() == 1) continue;
    const auto own = std::lower_bound(values.begin(), values.end(), rates[one]) - values.begin();
    const auto other = [&](std::size_t at) { return values[at + (at >= std::size_t(own))]; };
    const auto others = values.size() - 1;
    const double middle = (other((others - 1) / 2) + other(others / 2)) / 2;
    found.push_back({one, middle, middle > 0 ? middle / rates[one] : 1});
  }
  return found;
}

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
