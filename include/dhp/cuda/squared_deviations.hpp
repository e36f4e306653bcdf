// Converts a statistic of cuDNN's batch norm into the statistic that dhp's layers expect.
#pragma once

#include <dhp/core/config.hpp>

namespace dhp::detail::cuda {

/// Returns the sum of squared deviations of `rows` values, from inv_std = 1 / sqrt(variance + epsilon).
struct SquaredDeviations {
  double epsilon, rows;
  constexpr float operator()(float inv_std) const {
    const double root = static_cast<double>(inv_std);
    const double variance = 1 / (root * root) - epsilon;
    return static_cast<float>(variance < 0 ? 0 : variance * rows);  // rounding may give < 0
  }
};

}  // namespace dhp::detail::cuda
