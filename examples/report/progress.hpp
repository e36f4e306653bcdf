// A run's output to people: a bar with loss, rate and time left on a terminal, plain lines elsewhere.
#pragma once

#include <dhp/core/config.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <set>
#include <string>

namespace examples {

class Progress : dhp::detail::NonCopyable {
 public:
  /// Bars go to standard error if it is a terminal, except a dumb one (TERM); NO_COLOR is respected.
  Progress(std::int64_t steps_before, std::int64_t total_steps);

  ~Progress() { finish(); }

  /// Shows one step and the seconds that it took; `notes` follow the loss ("skipped", ...).
  void step(std::int64_t step, double loss, double seconds, double samples_per_s,
            const std::string& notes);
  /// Prints a line of its own, above the bar.
  void line(const std::string& text);
  void finish();

 private:
  void clear_bar();
  std::int64_t first_;
  std::int64_t total_;
  bool terminal_;
  bool bar_shown_ = false;
  std::int64_t print_every_;
  double step_seconds_ = 0;  // seconds of all steps, without the time between them
};

/// As dhp's function of this name. A path of which nothing can be known, such as one in a folder of another user, is
/// named without words of the C++ library.
[[nodiscard]] std::string sentence_of(const std::exception& error);

/// Throws if standard output is a file and not all text has reached it. A pipe is allowed to lose its reader.
void check_output();
/// Runs the body of a main and returns its status; an error becomes one sentence on standard error and status 1. First
/// opens closed standard streams on /dev/null, so that no file of the body gets their numbers.
[[nodiscard]] int exit_status_of(const std::function<int()>& body);

/// Formats a duration, such as "1 h 02 min", "3 min 20 s" or "12 s".
[[nodiscard]] std::string duration_text(double seconds);
/// Formats four significant digits.
[[nodiscard]] std::string short_number(double value);
/// Formats ranks, such as "0-3,7".
[[nodiscard]] std::string ranges(const std::set<int>& ranks);

}  // namespace examples
