// Which ranks are slower than the others: each is held against the median of the others of its kind, so that neither
// one slow rank nor a cluster of two kinds of hosts moves the mark.
#pragma once

#include "limits.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace examples::doctor {

/// Of no values: not_known.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return not_known;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// A rate beside those that it is compared with.
struct Slowdown {
  std::size_t index = 0;
  double others = 0;  ///< their median
  std::size_t compared = 0;
  double ratio = 1;  ///< how many times slower; infinite for a rate of 0
};

/// Of each rate that has others of its kind. Rates that are not known are left out.
[[nodiscard]] inline std::vector<Slowdown> slowdowns(const std::vector<double>& rates,
                                                     const std::vector<std::string>& kinds) {
  std::vector<Slowdown> found;
  for (std::size_t one = 0; one < rates.size(); ++one) {
    if (std::isnan(rates[one])) continue;
    std::vector<double> others;
    for (std::size_t other = 0; other < rates.size(); ++other)
      if (other != one && kinds[other] == kinds[one] && !std::isnan(rates[other]))
        others.push_back(rates[other]);
    if (others.empty()) continue;
    const double middle = median(others);
    found.push_back({one, middle, others.size(), middle > 0 ? middle / rates[one] : 1});
  }
  return found;
}

}  // namespace examples::doctor
