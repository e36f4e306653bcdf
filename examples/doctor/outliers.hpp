// Compares each rate with the median of the other rates of its kind. Neither one slow rank nor a cluster with two kinds
// of hosts shifts that median.
#pragma once

#include "finding.hpp"

#include <map>

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

}  // namespace examples::doctor
