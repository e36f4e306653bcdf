// A run's output: for people a bar with loss, rate and time left on a terminal, plain lines elsewhere;
// for programs one JSON object a line.
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
  /// Bars go to standard error if it is a terminal; NO_COLOR is honoured.
  Progress(std::int64_t steps_before, std::int64_t total_steps);

  ~Progress() { finish(); }

  /// One step and the seconds that it took; `notes` is shown behind the loss ("skipped", ...).
  void step(std::int64_t step, double loss, double seconds, double samples_per_s,
            const std::string& notes);
  /// A line of its own, above the bar.
  void line(const std::string& text);
  void finish();

 private:
  void clear_bar();
  std::int64_t first_;
  std::int64_t total_;
  bool terminal_;
  bool bar_shown_ = false;
  std::int64_t print_every_;
  double step_seconds_ = 0;  // of all steps, without what went on between them
};

/// One JSON object a line, written through at once; numbers in their shortest exact form.
class Metrics {
 public:
  /// An empty path writes nothing. What a file has of steps up to steps_before stays, so that a run that goes on has
  /// each step once. A run that begins replaces a file of up to `replaces` steps. Throws where the file has more,
  /// cannot be written, or is another run's now; shared: the rank 0 of before may have it open.
  Metrics(const std::string& path, std::int64_t steps_before,
          std::int64_t replaces = std::numeric_limits<std::int64_t>::max(), bool shared = false);
  void write(const std::vector<std::pair<std::string, double>>& fields);
  /// The last line of a run: these fields in one, "summary".
  void write_summary(std::int64_t step, const std::vector<std::pair<std::string, double>>& fields);
  /// The last step in the file when it was opened; 0: none.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }

 private:
  void put(const std::string& line);
  std::string path_;
  std::shared_ptr<const void> lock_;  // of the file, as long as it is written
  std::ofstream file_;
  std::int64_t last_step_ = 0;
};

/// The end of every main: the status of body; an error becomes one sentence on standard error and status 1.
[[nodiscard]] int exit_status_of(const std::function<int()>& body);

/// "1 h 02 min", "3 min 20 s", "12 s"
[[nodiscard]] std::string duration_text(double seconds);
/// Four significant digits.
[[nodiscard]] std::string short_number(double value);
/// "0-3,7"
[[nodiscard]] std::string ranges(const std::set<int>& ranks);

}  // namespace examples
