// Prints lines of tables for dhp_compare.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <iostream>
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

}  // namespace examples
