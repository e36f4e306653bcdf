// The kind of a file of JSON lines, by its first line.
#pragma once

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>

namespace examples {

/// Whether that is an object with this key.
[[nodiscard]] inline bool first_line_has(const std::string& path, const char* key) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  return json.is_object() && json.contains(key);
}

}  // namespace examples
