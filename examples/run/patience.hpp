// Patience: ends a run when a measure no longer improves (Prechelt 1998, "Early stopping - but when?").
#pragma once

#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/run_state.hpp>

#include "../report/run_summary.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Returns the value of a measure that an option names. Throws if an evaluation does not have it.
[[nodiscard]] inline double value_of(const char* option, const std::string& measure,
                                     const std::vector<std::pair<std::string, double>>& found) {
  std::string names;
  for (const auto& [name, value] : found) {
    if (name == measure) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  dhp::fail(option, " ", measure, ": this model's evaluations measure ", names);
}

class Patience {
 public:
  /// measure: empty for a run that never stops early. evaluations: the run ends after so many without a better value.
  /// best: a part of the run's state and of checkpoints; the first evaluation replaces the value of another measure.
  Patience(std::string measure, std::int64_t evaluations, dhp::BestMeasure& best)
      : measure_(std::move(measure)), evaluations_(evaluations), best_(best) {}

  /// Takes the measures of an evaluation after `step`. Throws if the measure is missing. due: false for an additional
  /// evaluation, which an uninterrupted run would not make; it counts only if there is no value yet.
  void take(std::int64_t step, const std::vector<std::pair<std::string, double>>& found,
            bool due = true) {
    if (measure_.empty()) return;
    const double value = value_of("--stop-early", measure_, found);
    if (waits() && (!due || step == best_.step)) return;  // a continued run begins with one
    if (!waits() || is_better(value))
      best_ = {.measure = measure_, .best = value, .best_step = step};
    else ++best_.without_better;
    best_.step = step;
  }
  [[nodiscard]] bool is_over() const { return waits() && best_.without_better >= evaluations_; }
  /// Returns why the run ends.
  [[nodiscard]] std::string sentence() const {
    return dhp::concat(measure_, " was best after step ", best_.best_step, " (",
                       short_number(best_.best), "), and no better in ",
                       dhp::detail::pluralize(best_.without_better, "evaluation"), " since");
  }

 private:
  [[nodiscard]] bool waits() const { return !measure_.empty() && best_.measure == measure_; }
  /// Returns whether a value is better; NaN is worse than any number.
  [[nodiscard]] bool is_better(double value) const {
    if (std::isnan(best_.best)) return !std::isnan(value);
    return dhp::lower_is_better(measure_) ? value < best_.best : value > best_.best;
  }

  std::string measure_;
  std::int64_t evaluations_;
  dhp::BestMeasure& best_;
};

}  // namespace examples
