// When a run is over because a measure no longer gets better (Prechelt 1998, "Early stopping - but when?").
#pragma once

#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/run_state.hpp>

#include "../report/run_summary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace examples {

class Patience {
 public:
  /// measure: empty for a run that never stops early. evaluations: in a row that may find no better value. best: of
  /// the run's state, so that it is in checkpoints; that of another measure is forgotten at the first evaluation.
  Patience(std::string measure, std::int64_t evaluations, dhp::BestMeasure& best)
      : measure_(std::move(measure)), evaluations_(evaluations), best_(best) {}

  /// Takes what an evaluation after `step` has measured. Throws if the measure is not in it.
  void take(std::int64_t step, const std::vector<std::pair<std::string, double>>& found) {
    if (measure_.empty()) return;
    const auto named = std::find_if(found.begin(), found.end(),
                                    [&](const auto& one) { return one.first == measure_; });
    std::string names;
    for (const auto& one : found) names += (names.empty() ? "" : ", ") + one.first;
    dhp::check(named != found.end(), "--stop-early ", measure_,
               ": this model's evaluations measure ", names);
    if (!waits()) best_ = {.measure = measure_, .best = named->second, .best_step = step};
    else if (step == best_.step) return;  // a run that goes on begins with its last one
    else if (is_better(named->second))
      best_ = {.measure = measure_, .best = named->second, .best_step = step};
    else ++best_.without_better;
    best_.step = step;
  }
  [[nodiscard]] bool is_over() const { return waits() && best_.without_better >= evaluations_; }
  /// Why it is over.
  [[nodiscard]] std::string sentence() const {
    return dhp::concat(measure_, " was best after step ", best_.best_step, " (",
                       short_number(best_.best), "), and no better in ", best_.without_better,
                       best_.without_better == 1 ? " evaluation since" : " evaluations since");
  }

 private:
  [[nodiscard]] bool waits() const { return !measure_.empty() && best_.measure == measure_; }
  /// NaN is worse than any number.
  [[nodiscard]] bool is_better(double value) const {
    if (std::isnan(best_.best)) return !std::isnan(value);
    return dhp::lower_is_better(measure_) ? value < best_.best : value > best_.best;
  }

  std::string measure_;
  std::int64_t evaluations_;
  dhp::BestMeasure& best_;
};

}  // namespace examples
