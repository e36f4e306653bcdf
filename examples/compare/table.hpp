// Prints lines of tables for dhp_compare, and the difference of two numbers with its usual cause.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace examples {

/// Cuts a text that is wider than its column, so that it ends in ".." and then in `end`.
[[nodiscard]] inline std::string cut(const std::string& text, std::size_t width,
                                     const std::string& end = "") {
  if (text.size() + end.size() <= width) return text + end;
  return text.substr(0, width - std::min(width, end.size() + 2)) + ".." + end;
}
/// Pads or cuts a text to the width; a negative width aligns right.
[[nodiscard]] inline std::string cell(std::string text, int width) {
  const auto columns = static_cast<std::size_t>(std::abs(width));
  text = cut(text, columns);
  const std::string space(columns - text.size(), ' ');
  return width < 0 ? space + text : text + space;
}
/// Prints a line without trailing spaces.
inline void print(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  std::cout << line << "\n";
}

/// Prints a row with cells of these widths; a left-aligned cell has a space before it.
inline void print_row(std::span<const int> widths, const std::vector<std::string>& texts) {
  std::string line = "  ";
  for (std::size_t at = 0; at < widths.size(); ++at)
    line +=
        (at > 0 && widths[at - 1] < 0 && widths[at] > 0 ? "  " : "") + cell(texts[at], widths[at]);
  print(line);
}

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
inline constexpr double max_rounding = 1e-3;

inline constexpr const char* rounding_cause =
    "as little as rounding makes: sums in another order, by another layout, reducer, engine or "
    "device; with --deterministic only another device, or other tensor or context groups, change "
    "bits";

}  // namespace examples
