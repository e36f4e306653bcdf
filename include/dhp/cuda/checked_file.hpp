// Small files that end with a checksum, to detect damage.
#pragma once

#include <dhp/core/hash.hpp>
#include <dhp/core/open_file.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace dhp::detail::cuda {

inline constexpr std::string_view checksum_line = "sum ";

/// Returns `text`, which must end with a newline, and its checksum line.
[[nodiscard]] inline std::string with_checksum(std::string text) {
  const auto sum = fnv1a(text);
  return std::move(text) + concat(checksum_line, sum, "\n");
}
/// Returns the text without its checksum; nullopt if the file is damaged or cannot be read.
[[nodiscard]] inline std::optional<std::string> read_checked(const std::string& path) {
  std::string text;
  try {
    const OpenFile file(path, O_RDONLY);
    constexpr std::uint64_t most = 64 << 20;
    text = file.text(0, std::min(file.size(), most));
  } catch (const Error&) {
    return {};
  }
  const auto end = text.rfind(concat("\n", checksum_line));
  if (end == text.npos) return {};
  const auto sum = text.substr(end + 1);
  text.resize(end + 1);
  if (sum != concat(checksum_line, fnv1a(text), "\n")) return {};
  return text;
}

}  // namespace dhp::detail::cuda
