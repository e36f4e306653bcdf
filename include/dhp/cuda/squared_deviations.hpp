// Converts a statistic of cuDNN's batch norm into the one that dhp's layers expect.
#pragma once

#include <dhp/core/config.hpp>

namespace dhp::detail::cuda {

/// The sum of squared deviations of `rows` values, from 1 / sqrt(variance + epsilon).
struct SquaredDeviations {
  double epsilon, rows;
  constexpr float operator()(float inv_std) const {
    const double root = static_cast<double>(inv_std);
    const double variance = 1 / (root * root) - epsilon;
    return static_cast<float>(variance < 0 ? 0 : variance * rows);  // rounding may make it negative
  }
};

}  // namespace dhp::detail::cuda
