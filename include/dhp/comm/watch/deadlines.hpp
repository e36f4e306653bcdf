// Deadlines says how long a rank may wait for another. A single limit would be too short for saving, or too long to
// detect a hung step. So each section of a program has its own limit, learned from its past durations.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace dhp {

enum class Section {
  start,
  first_step,
  step,
  evaluation,
  saving,
  end,
  rest  ///< no other rank waits for this one, so its limit is the least one
};

[[nodiscard]] constexpr const char* name_of(Section section) {
  constexpr const char* names[] = {"the start", "the first step", "a step", "an evaluation",
                                   "saving",    "the end",        "a rest"};
  static_assert(std::size(names) == detail::as_size(Section::rest) + 1);
  return names[static_cast<int>(section)];
}

namespace detail {
/// Limit of a rank's waits, and the reason for this limit.
struct TimeLimit {
  double seconds = 0;  ///< 0 means no limit
  std::string why{};   ///< such as "for a step, 10 times its median"; empty for a fixed limit

  [[nodiscard]] bool longer_than(const TimeLimit& other) const {
    return other.seconds > 0 && (seconds == 0 || seconds > other.seconds);
  }
  [[nodiscard]] bool passed_by(double s) const { return seconds > 0 && s > seconds; }
  /// Returns the text that follows "beyond" in an error.
  friend std::string to_text(const TimeLimit& limit) {
    if (limit.why.empty())
      return concat("the time limit of ", limit.seconds, " s; a larger limit waits longer");
    return concat("the limit of ", limit.seconds, " s ", limit.why,
                  "; a fixed limit can be given instead");
  }
};
struct DeadlineRules {
  /// Least limit: packet loss or a busy file system stops a rank for some seconds.
  double min_s = 30;
  /// A learned limit is this many times the median duration; a wait ten times as long is no longer chance.
  double factor = 10;
  /// Limit before one is learned: loading and tuning kernels, first reads, or saving a large model take minutes.
  double unlearned_s = 600;
  /// Number of passes after which the limit is learned; the first passes are often unusual.
  std::size_t passes = 5;
};
}  // namespace detail

/// The program reports its current section here, and its watchdog reads the limit here. A process has one object; if
/// its ranks are threads, one of them reports. All ranks leave a section together, by a collective.
class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;

  /// Learns each section's limit from its durations.
  explicit Deadlines(detail::DeadlineRules rules = {}) : rules_(rules) {
    check(rules.min_s > 0 && rules.factor >= 1 && rules.unlearned_s > 0 && rules.passes > 0,
          "learned time limits need at least 1 pass, a factor of at least 1, and seconds above 0");
    limit_ = learned(Section::start);
  }
  /// Sets one fixed limit, in seconds; 0 means no limit.
  explicit Deadlines(double limit_s) : fixed_(true) {
    check(limit_s >= 0,
          "the time limit of a collective is a number of seconds, or 0 for none, got ", limit_s);
    constexpr double century_s = 3e9;  // a longer limit overflows the clock
    limit_.seconds = limit_s < century_s ? limit_s : 0;
  }

  /// Reports that the program enters a section, which may be the current one again.
  void enter(Section section, Clock::time_point now = Clock::now()) {
    if (fixed_) return;
    const std::lock_guard lock(mutex_);
    auto& [last, count] = of(section_);
    last[count++ % last.size()] = std::chrono::duration<double>(now - entered_).count();
    section_ = section;
    entered_ = now;
    auto limit = learned(section);
    if (limit_.longer_than(limit)) shortened_ = now;
    limit_ = std::move(limit);
  }

  [[nodiscard]] detail::TimeLimit limit() const {
    const std::lock_guard lock(mutex_);
    return limit_;
  }
  [[nodiscard]] double limit_s() const { return limit().seconds; }
  /// Returns the time at which a wait that began at `begun` expires. If the limit has become shorter since, the wait
  /// counts from that change, because other ranks may have stayed in the section with the longer limit.
  [[nodiscard]] Clock::time_point end_of_wait(Clock::time_point begun) const {
    const std::lock_guard lock(mutex_);
    if (limit_.seconds == 0) return Clock::time_point::max();
    return std::max(begun, shortened_) + std::chrono::duration_cast<Clock::duration>(
                                             std::chrono::duration<double>(limit_.seconds));
  }

 private:
  /// The last durations of a section, in seconds.
  struct Durations {
    std::array<double, 32> last{};
    std::size_t count = 0;
  };
  [[nodiscard]] Durations& of(Section section) { return known_[detail::as_size(section)]; }
  // Learned limits are whole seconds, so that messages do not vary with small differences of durations.
  [[nodiscard]] detail::TimeLimit learned(Section section) {
    const auto& [last, count] = of(section);
    if (section == Section::rest) return {rules_.min_s, concat("for ", name_of(section))};
    if (count < rules_.passes) return {rules_.unlearned_s, concat("for ", name_of(section))};
    std::vector<double> sorted(last.begin(), last.begin() + std::min(count, last.size()));
    const auto median = sorted.begin() + std::ssize(sorted) / 2;
    std::nth_element(sorted.begin(), median, sorted.end());
    const double limit_s = std::ceil(rules_.factor * *median);
    if (limit_s > rules_.min_s)
      return {limit_s, concat("for ", name_of(section), ", ", rules_.factor, " times its median")};
    return {rules_.min_s, concat("for ", name_of(section), ", the minimum")};
  }

  detail::DeadlineRules rules_{};
  bool fixed_ = false;
  mutable std::mutex mutex_;
  detail::TimeLimit limit_{};
  Section section_ = Section::start;
  Clock::time_point entered_ = Clock::now();
  Clock::time_point shortened_ = Clock::time_point::min();
  std::array<Durations, 7> known_{};
};

}  // namespace dhp
