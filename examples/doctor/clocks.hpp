// The clock check: how far apart the ranks' clocks are.
#pragma once

#include <dhp/comm/clock_offset.hpp>

#include "examination.hpp"
#include "timing.hpp"

#include <chrono>

namespace examples::doctor {

/// Seconds since 1970 by the host's clock.
[[nodiscard]] inline double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// ahead_s: of each rank's clock before that of rank 0, which half of round_trip_s may be wrong by. Each is held
/// against the median, so that rank 0 can be the one that is wrong.
template <class Who>
[[nodiscard]] std::vector<Problem> judge_clocks(const std::vector<double>& ahead_s,
                                                const std::vector<double>& round_trip_s,
                                                const Limit& limit, Who who) {
  std::vector<Problem> problems;
  const bool two = ahead_s.size() == 2;
  const double middle = two ? 0 : median(ahead_s);
  for (std::size_t rank = 0; rank < ahead_s.size(); ++rank) {
    const double off = ahead_s[rank] - middle;
    const auto verdict = above(std::abs(off) - round_trip_s[rank] / 2, limit);
    if (verdict == Verdict::ok) continue;
    const int number = static_cast<int>(rank);
    problems.push_back(
        {verdict, two ? std::set<int>{0, 1} : std::set<int>{number},
         dhp::concat("the clock of ", who(number), " is ", three_digits(std::abs(off)), " s ",
                     off > 0 ? "ahead of " : "behind ",
                     two ? "that of " + who(0) + ", and of two nobody can say which is right"
                         : "the median of all",
                     "; let NTP or PTP set the clocks of all hosts")});
  }
  return problems;
}

template <class Dev>
[[nodiscard]] Finding check_clocks(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("clock", "one rank has no other clock to compare with");
  Finding finding;
  finding.check = "clock";
  const double skew_s = exam.fault("skewed-clock") ? 1000 : 0;
  const auto own = dhp::clock_offset(exam.dev, exam.world, [&] { return wall_clock_s() + skew_s; });
  const auto found = dhp::gather(exam.dev, exam.world, {own.ahead_s, own.round_trip_s});
  std::vector<double> ahead_s, round_trip_s;
  for (std::size_t i = 0; i < found.size(); i += 2) {
    ahead_s.push_back(found[i]);
    round_trip_s.push_back(found[i + 1]);
  }
  finding.problems = judge_clocks(ahead_s, round_trip_s, exam.limits().clock_skew_s,
                                  [&](int rank) { return exam.who(rank); });
  for (auto* figure : {&ahead_s, &round_trip_s})
    for (auto& value : *figure) value *= 1e3;
  finding.figures.push_back({"ahead of rank 0", "ms", ahead_s});
  finding.figures.push_back({"round trip", "ms", round_trip_s});
  finding.summary = "the best of several round trips to rank 0";
  return finding;
}

}  // namespace examples::doctor
