// A run's output to programs: one JSON object a line (--metrics).
#pragma once

#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Names and values.
using Measures = std::vector<std::pair<std::string, double>>;

/// Writes one JSON object a line and flushes it, with numbers in their shortest exact form.
class Metrics {
 public:
  /// With an empty path nothing is written. A continued run keeps the file's steps up to steps_before, so that each
  /// step is in the file once. A new run replaces a file of up to `replaces` steps. Throws if the file has more steps,
  /// cannot be written, or is in use by another run. shared: an earlier rank 0 may still have it open.
  Metrics(const std::string& path, std::int64_t steps_before,
          std::int64_t replaces = std::numeric_limits<std::int64_t>::max(), bool shared = false);
  void write(const Measures& fields);
  /// Writes the last line of a run: the step, and an object "summary" of these fields.
  void write_summary(std::int64_t step, const Measures& fields);
  /// Returns the last step in the file when it was opened; 0: none.
  [[nodiscard]] std::int64_t last_step() const { return last_step_; }

 private:
  void put(const std::string& line);
  std::string path_;
  std::shared_ptr<const void> lock_;  // lock on the file while it is written
  std::ofstream file_;
  std::int64_t last_step_ = 0;
};

}  // namespace examples
