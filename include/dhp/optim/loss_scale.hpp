// Dynamic loss scaling (Micikevicius et al. 2018, "Mixed precision training", section 3.2): f16 gradients
// are computed for a scaled loss; a step whose gradients are not finite is skipped and halves the scale.
#pragma once

#include <algorithm>

namespace dhp {

struct LossScaleOptions {
  bool dynamic = false;
  double initial = 1;
  double growth = 2;
  int growth_interval = 2000;  ///< steps without a skip before the scale grows
  double largest = 16777216;   ///< 2^24
};

class LossScale {
 public:
  explicit LossScale(LossScaleOptions options = {}) : options_(options), scale_(options.initial) {}

  [[nodiscard]] double value() const { return scale_; }
  [[nodiscard]] bool dynamic() const { return options_.dynamic; }
  /// It cannot become smaller: what overflows now would do so without a scale.
  [[nodiscard]] bool at_least() const { return scale_ <= 1; }
  [[nodiscard]] int good_steps() const { return good_steps_; }

  /// Called once per step with the verdict that all ranks share; true: the optimizer may step.
  bool update(bool finite) {
    if (!options_.dynamic) return finite;
    if (!finite) {
      scale_ = std::max(1.0, scale_ / options_.growth);
      good_steps_ = 0;
      return false;
    }
    if (++good_steps_ >= options_.growth_interval) {
      scale_ = std::min(options_.largest, scale_ * options_.growth);
      good_steps_ = 0;
    }
    return true;
  }

  void restore(double scale, int good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

 private:
  LossScaleOptions options_;
  double scale_;
  int good_steps_ = 0;
};

}  // namespace dhp
