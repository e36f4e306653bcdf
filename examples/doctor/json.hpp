// Limits and reports as JSON.
#pragma once

#include "finding.hpp"
#include "limits.hpp"

#include <string>
#include <vector>

namespace examples::doctor {

/// What --limits reads: the limits that the file names, and the built-in ones for the rest. Throws dhp::Error where it
/// cannot be read, or has a key or value that makes no sense.
[[nodiscard]] Limits read_limits(const std::string& path);
/// From text; `path` is for messages.
[[nodiscard]] Limits parse_limits(const std::string& text, const std::string& path);
/// What --print-limits prints.
[[nodiscard]] std::string limits_text(const Limits& limits);

struct Report {
  std::vector<std::string> hosts{};  ///< of each rank
  std::string device{};
  double seconds = 0;
  std::vector<Finding> findings{};
};

[[nodiscard]] std::string report_text(const Report& report);
/// Throws dhp::Error where the file cannot be written.
void write_report(const Report& report, const std::string& path);

}  // namespace examples::doctor
