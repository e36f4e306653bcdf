// The memory that this host has for ranks, and a readable form of bytes.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

namespace examples {

/// Returns the value of the first line "KEY: value" or "KEY=value" of a file; empty if there is none.
[[nodiscard]] inline std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto start = line.find_first_not_of(" \t:=\"", key.size());
    if (start == line.npos) return "";
    return line.substr(start, line.find_last_not_of(" \t\"") + 1 - start);
  }
  return "";
}

namespace host_memory {

inline constexpr auto no_limit = std::numeric_limits<std::size_t>::max();

/// Returns the number in a file; no_limit if the file is missing or says "max".
[[nodiscard]] inline std::size_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? number : no_limit;
}

/// Returns the smallest limit of a control group and its parents. A container may see its own group as the root.
[[nodiscard]] inline std::size_t min_limit(const std::string& mount, std::string group,
                                           const std::string& name) {
  auto least = number_in(mount + "/" + name);
  while (group.size() > 1 && group.front() == '/') {
    least = std::min(least, number_in(mount + group + "/" + name));
    group.erase(group.rfind('/'));
  }
  return least;
}

}  // namespace host_memory

/// Returns the bytes that a host has for its ranks: the smallest limit of this process's control groups or the free
/// memory, whichever is less. root: a prefix of the paths that are read. Without /proc all memory counts as free.
[[nodiscard]] inline std::size_t host_memory_bytes(const std::string& root = "") {
  using namespace host_memory;
  std::istringstream free(value_in(root + "/proc/meminfo", "MemAvailable:"));
  auto least = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
  if (std::size_t kibibytes = 0; free >> kibibytes) least = 1024 * kibibytes;
  std::ifstream groups(root + "/proc/self/cgroup");
  const auto mount = root + "/sys/fs/cgroup";
  std::string line;
  while (std::getline(groups, line)) {  // number:controllers:group; version 2 has no controllers
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto group = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, min_limit(mount, group, "memory.max"));
    else if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, min_limit(mount + "/memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

/// Formats bytes, such as "1.23 GB"; 1 GB is 10^9 bytes.
[[nodiscard]] inline std::string bytes_text(std::size_t bytes) {
  const auto value = static_cast<double>(bytes);
  const auto [unit, name] = value >= 1e9   ? std::pair{1e9, "GB"}
                            : value >= 1e6 ? std::pair{1e6, "MB"}
                                           : std::pair{1e3, "kB"};
  char text[32];
  const double number = value / unit;
  std::snprintf(text, sizeof text, "%.*f %s", number < 10 ? 2 : number < 100 ? 1 : 0, number, name);
  return text;
}

}  // namespace examples
