// The clock check: how far apart the ranks' clocks are, found as NTP does: rank 0 asks each rank for its time, some
// times over, and of the answers believes the one that came back the fastest.
#pragma once

#include "examination.hpp"
#include "timing.hpp"

#include <chrono>

namespace examples::doctor {

/// Seconds since 1970 by the host's clock.
[[nodiscard]] inline double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// One question: when it was sent and answered by the asker's clock, and what the answer said.
struct ClockAnswer {
  double sent_s = 0;
  double said_s = 0;
  double back_s = 0;
  [[nodiscard]] double round_trip_s() const { return back_s - sent_s; }
  /// How far ahead the other clock is, wrong by at most half of the round trip.
  [[nodiscard]] double ahead_s() const { return said_s - (sent_s + back_s) / 2; }
};

/// The one with the least round trip.
[[nodiscard]] inline ClockAnswer best_of(const std::vector<ClockAnswer>& answers) {
  return *std::min_element(answers.begin(), answers.end(), [](const auto& a, const auto& b) {
    return a.round_trip_s() < b.round_trip_s();
  });
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
  auto& dev = exam.dev;
  constexpr int questions = 8;
  const double skew_s = exam.fault("skewed-clock") ? 1000 : 0;
  auto time = dhp::Tensor<Dev>::zeros(dev, dhp::DType::f64, dhp::Shape{1});
  const auto answered = [&](int rank) {
    ClockAnswer answer;
    answer.sent_s = wall_clock_s() + skew_s;
    exam.world.send(dev, time, rank);
    exam.world.recv(dev, time.mut(), rank);
    answer.said_s = time.template to_host<double>(dev)[0];
    answer.back_s = wall_clock_s() + skew_s;
    return answer;
  };
  std::vector<double> found(2 * static_cast<std::size_t>(exam.size()));
  for (int rank = 1; rank < exam.size(); ++rank) {
    if (exam.rank() == 0) {
      std::vector<ClockAnswer> answers;
      for (int question = 0; question < questions; ++question) answers.push_back(answered(rank));
      const auto best = best_of(answers);
      found[static_cast<std::size_t>(2 * rank)] = best.ahead_s();
      found[static_cast<std::size_t>(2 * rank + 1)] = best.round_trip_s();
    } else if (exam.rank() == rank) {
      for (int question = 0; question < questions; ++question) {
        exam.world.recv(dev, time.mut(), 0);
        dev.synchronize();
        const auto now =
            dhp::Tensor<Dev>::from_host(dev, dhp::Shape{1}, std::vector{wall_clock_s() + skew_s});
        exam.world.send(dev, now, 0);
      }
    }
  }
  auto all =
      dhp::Tensor<Dev>::from_host(dev, dhp::Shape{static_cast<std::int64_t>(found.size())}, found);
  exam.world.broadcast(dev, all.mut(), 0).wait(dev);
  found = all.template to_host<double>(dev);
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
  finding.summary = dhp::concat("the best of ", questions, " round trips from rank 0");
  return finding;
}

}  // namespace examples::doctor
