// Finding: the result of one check. Report: all findings, as a page, a JSON file and an exit status.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/text.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace examples::doctor {

/// Results ordered from good to bad.
enum class Verdict { ok, skipped, warning, failed };

inline constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

/// A measured number: one value per rank (not_known for ranks without one), or one value for all.
struct Figure {
  std::string name{};
  std::string unit{};
  std::vector<double> values{};
};

struct Link {
  int first = 0;
  int second = 0;
  double gb_s = 0;
};

struct Problem {
  Verdict verdict = Verdict::warning;
  std::set<int> ranks{};   ///< the suspects; empty if unknown
  std::string sentence{};  ///< names the problem, its place and a remedy
};

struct Finding {
  std::string check{};
  std::vector<std::string> notes{};  ///< one line each
  bool skipped = false;
  std::vector<Figure> figures{};
  std::vector<Link> links{};
  std::vector<Problem> problems{};

  [[nodiscard]] Verdict verdict() const {
    auto worst = skipped ? Verdict::skipped : Verdict::ok;
    for (const auto& problem : problems) worst = std::max(worst, problem.verdict);
    return worst;
  }
};

[[nodiscard]] inline Finding skipped(const std::string& why) {
  return {.notes = {why}, .skipped = true};
}

struct Report {
  std::vector<std::string> hosts{};  ///< host names by rank
  std::string device{};
  double seconds = 0;
  std::vector<Finding> findings{};

  /// Returns 0 if all is well, 1 after a failure, 2 for warnings only.
  [[nodiscard]] int exit_status() const {
    auto worst = Verdict::ok;
    for (const auto& finding : findings) worst = std::max(worst, finding.verdict());
    return worst == Verdict::failed ? 1 : worst == Verdict::warning ? 2 : 0;
  }
};

/// Returns a table of all figures, then the problems, worst last.
[[nodiscard]] std::string page_of(const Report& report);
[[nodiscard]] std::string json_of(const Report& report);
/// Returns dhp's version.
[[nodiscard]] inline std::string version() {
  return dhp::concat(dhp::version_major, ".", dhp::version_minor, ".", dhp::version_patch);
}
/// Formats a value with three significant digits, or without decimals from 100 on; "-" if it is not known.
[[nodiscard]] std::string three_digits(double value);

}  // namespace examples::doctor
