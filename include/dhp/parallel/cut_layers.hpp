// Cuts a list of costs into contiguous parts, so that the most expensive part is as cheap as possible.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace dhp {

/// Returns parts + 1 numbers: the first layer of each part, then the number of layers. Every part has a layer or more.
[[nodiscard]] inline std::vector<std::int64_t> cut_layers(const std::vector<double>& costs,
                                                          int parts) {
  const auto layers = costs.size();
  const auto stages = detail::as_size(parts);
  check(parts >= 1 && stages <= layers, "the pipeline has ", detail::pluralize(parts, "part"),
        " for ", detail::pluralize(layers, "layer"),
        "; every part needs at least one: choose fewer stages or chunks");
  for (const double cost : costs)
    check(cost >= 0 && std::isfinite(cost), "a layer's cost is finite and 0 or more, got ", cost);
  // best[p][n]: the cost of the most expensive part if the first n layers are cut into p parts.
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, infinite));
  std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (std::size_t part = 1; part <= stages; ++part)
    for (std::size_t end = part; end <= layers; ++end) {
      double last = 0;
      for (std::size_t begin = end; begin-- > part - 1;) {
        last += costs[begin];
        const double most = std::max(best[part - 1][begin], last);
        if (most < best[part][end]) {
          best[part][end] = most;
          from[part][end] = begin;
        }
      }
    }
  std::vector<std::int64_t> cuts(stages + 1);
  std::size_t end = layers;
  for (std::size_t part = stages; part > 0; --part) {
    cuts[part] = static_cast<std::int64_t>(end);
    end = from[part][end];
  }
  return cuts;
}

}  // namespace dhp
