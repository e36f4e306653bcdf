// The difference of two numbers, and its usual cause.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace examples {

/// Returns whether both are equal; two NaNs are equal.
[[nodiscard]] inline bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}
/// Returns the difference relative to the larger number; infinite if one of the numbers is not finite.
[[nodiscard]] inline double relative_difference(double a, double b) {
  if (same(a, b)) return 0;
  const double apart = std::abs(a - b) / std::max(std::abs(a), std::abs(b));
  return std::isfinite(apart) ? apart : std::numeric_limits<double>::infinity();
}
/// Formats a difference, such as "1.2e-07".
[[nodiscard]] inline std::string short_difference(double relative) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", relative);
  return text;
}

/// The largest relative difference that rounding explains, in any precision, after a few steps.
inline constexpr double most_of_rounding = 1e-3;

inline constexpr const char* rounding_cause =
    "as little as rounding makes: sums in another order, by another layout, reducer, engine or "
    "device; with --deterministic only another device, or other tensor or context groups, change "
    "bits";

}  // namespace examples
