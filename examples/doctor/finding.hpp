// Finding: what a check has found, for people, for the JSON file and for the exit status alike.
#pragma once

#include <dhp/core/text.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace examples::doctor {

/// The worse, the later.
enum class Verdict { ok, skipped, warning, failed };

[[nodiscard]] constexpr const char* name_of(Verdict verdict) {
  constexpr std::array<const char*, 4> names{"ok", "skipped", "warning", "failed"};
  return names[static_cast<std::size_t>(verdict)];
}

inline constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

/// A number of each rank; not_known where a rank has none.
struct Figure {
  std::string name{};
  std::string unit{};
  std::vector<double> of_rank{};
};

/// A number of two ranks, such as the time of a message between them.
struct PairFigure {
  int first = 0;
  int second = 0;
  double value = 0;
};

struct Problem {
  Verdict verdict = Verdict::warning;
  std::set<int> ranks{};   ///< to blame; empty where that is not known
  std::string sentence{};  ///< what, where, and the way out
};

struct Finding {
  std::string check{};
  std::string summary{};  ///< a few words for where all is well; why, where the check was skipped
  bool skipped = false;
  std::vector<Figure> figures{};
  std::string pair_figure{};  ///< name and unit of what follows
  std::vector<PairFigure> pairs{};
  std::vector<Problem> problems{};

  [[nodiscard]] Verdict verdict() const {
    auto worst = skipped ? Verdict::skipped : Verdict::ok;
    for (const auto& problem : problems) worst = std::max(worst, problem.verdict);
    return worst;
  }
};

[[nodiscard]] inline Finding skipped(std::string check, std::string why) {
  Finding finding;
  finding.check = std::move(check);
  finding.summary = std::move(why);
  finding.skipped = true;
  return finding;
}

/// Of the program: 0 where all is well, 1 where something has failed, 2 where there are warnings only.
[[nodiscard]] inline int exit_status(const std::vector<Finding>& findings) {
  auto worst = Verdict::ok;
  for (const auto& finding : findings) worst = std::max(worst, finding.verdict());
  return worst == Verdict::failed ? 1 : worst == Verdict::warning ? 2 : 0;
}

/// For people: three significant digits, no exponent within reason.
[[nodiscard]] inline std::string three_digits(double value) {
  if (std::isnan(value)) return "-";
  const double size = std::abs(value);
  const bool whole = size < 1e6 && size == std::floor(size);
  const int decimals = whole || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  std::array<char, 64> text{};
  const bool extreme = size != 0 && (size < 0.01 || size >= 1e9);
  if (extreme) std::snprintf(text.data(), text.size(), "%.3g", value);
  else std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace examples::doctor
