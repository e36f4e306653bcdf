// Lines of tables as dhp_compare prints them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <string>

namespace examples {

/// What does not fit in so many columns ends in "..", before what follows it.
[[nodiscard]] inline std::string cut(const std::string& text, std::size_t width,
                                     const std::string& end = "") {
  if (text.size() + end.size() <= width) return text + end;
  return text.substr(0, width - std::min(width, end.size() + 2)) + ".." + end;
}
[[nodiscard]] inline std::string cell(std::string text, std::size_t width, bool right = false) {
  text = cut(text, width);
  const std::string space(width - text.size(), ' ');
  return right ? space + text : text + space;
}
/// Without spaces at the end.
inline void print(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  std::cout << line << "\n";
}

}  // namespace examples
