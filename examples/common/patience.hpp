// When a run is over because a measure no longer gets better (Prechelt 1998, "Early stopping - but when?").
#pragma once

#include "run_summary.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {

class Patience {
 public:
  /// measure: empty for a run that goes on to its end. evaluations: in a row that may find no better value.
  Patience(std::string measure, std::int64_t evaluations)
      : measure_(std::move(measure)), evaluations_(evaluations) {}

  /// What an evaluation after so many steps has found. Throws where it did not measure that.
  void take(std::int64_t step, const std::vector<std::pair<std::string, double>>& found) {
    if (measure_.empty() || step == taken_) return;  // a run that goes on begins with its last one
    const auto named = std::find_if(found.begin(), found.end(),
                                    [&](const auto& one) { return one.first == measure_; });
    std::string names;
    for (const auto& one : found) names += (names.empty() ? "" : ", ") + one.first;
    dhp::check(named != found.end(), "--stop-early ", measure_,
               ": this model's evaluations measure ", names);
    taken_ = step;
    if (!best_) {
      best_ = {.name = measure_, .last = named->second, .best = named->second, .best_step = step};
      return;
    }
    best_->take(step, named->second);
    without_better_ = best_->best_step == step ? 0 : without_better_ + 1;
  }
  /// For a checkpoint; null: nothing was found so far.
  [[nodiscard]] nlohmann::ordered_json to_json() const {
    if (!best_) return {};
    return {{"measure", measure_},
            {"best", best_->best},
            {"best_step", best_->best_step},
            {"without_better", without_better_},
            {"step", taken_}};
  }
  /// Of a loaded run, which may have waited for another measure.
  void resume(const nlohmann::ordered_json& saved) {
    if (measure_.empty() || !saved.is_object() || saved.value("measure", "") != measure_) return;
    best_ = {.name = measure_, .best_step = saved.value("best_step", std::int64_t{0})};
    const auto best = saved.find("best");  // of NaN null
    best_->best = best->is_number() ? best->get<double>() : std::nan("");
    without_better_ = saved.value("without_better", std::int64_t{0});
    taken_ = saved.value("step", std::int64_t{-1});
  }
  [[nodiscard]] bool is_over() const { return without_better_ >= evaluations_; }
  /// Why it is over.
  [[nodiscard]] std::string sentence() const {
    return dhp::concat(measure_, " was best after step ", best_->best_step, " (",
                       short_number(best_->best), "), and no better in ", without_better_,
                       without_better_ == 1 ? " evaluation since" : " evaluations since");
  }

 private:
  std::string measure_;
  std::int64_t evaluations_;
  std::optional<BestValue> best_;
  std::int64_t without_better_ = 0;
  std::int64_t taken_ = -1;  // the step of the last evaluation
};

}  // namespace examples
