// A run's output. People get a bar with loss, rate and time left on a terminal, and plain lines elsewhere; programs get
// one JSON object a line.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace examples {

class Progress : dhp::detail::NonCopyable {
 public:
  /// Bars go to standard error if it is a terminal; NO_COLOR is respected.
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

/// Writes one JSON object a line and flushes it, with numbers in their shortest exact form.
class Metrics {
 public:
  /// With an empty path nothing is written. A continued run keeps the file's steps up to steps_before, so that each
  /// step is in the file once. A new run replaces a file of up to `replaces` steps. Throws if the file has more steps,
  /// cannot be written, or is in use by another run. shared: an earlier rank 0 may still have it open.
  Metrics(const std::string& path, std::int64_t steps_before,
          std::int64_t replaces = std::numeric_limits<std::int64_t>::max(), bool shared = false);
  void write(const std::vector<std::pair<std::string, double>>& fields);
  /// Writes the last line of a run: the step, and an object "summary" of these fields.
  void write_summary(std::int64_t step, const std::vector<std::pair<std::string, double>>& fields);
  /// Returns the last step in the file when it was opened; 0: none.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }

 private:
  void put(const std::string& line);
  std::string path_;
  std::shared_ptr<const void> lock_;  // lock on the file while it is written
  std::ofstream file_;
  std::int64_t last_step_ = 0;
};

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
