// Learning rate per step: a linear warm-up, then a constant rate or linear, cosine, polynomial or step decay; or your
// own function.
#pragma once

#include <dhp/core/names.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace dhp {

enum class Decay { constant, linear, cosine, polynomial, step };

namespace detail {
inline constexpr std::pair<std::string_view, Decay> decays[] = {{"constant", Decay::constant},
                                                                {"linear", Decay::linear},
                                                                {"cosine", Decay::cosine},
                                                                {"polynomial", Decay::polynomial},
                                                                {"step", Decay::step}};
}  // namespace detail
[[nodiscard]] inline Decay parse_decay(std::string_view name) {
  return detail::find_named(detail::decays, name, "learning-rate decay");
}

struct LearningRate {
  double peak = 0.1;
  double final = 0;  ///< the rate at the end of the decay
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< the end of a linear, cosine or polynomial decay, at least 1
  Decay decay = Decay::constant;
  double power = 2;  ///< exponent of the polynomial decay
  /// Steps per period of the step decay, at least 1. Each period multiplies the rate by step_factor.
  std::int64_t step_every = 0;
  double step_factor = 0.1;
  /// Your own function of the step, counted from 1; replaces all fields above. Each rank calls it before each step. It
  /// must return the same on all ranks, and a resumed run needs the same function.
  std::function<double(std::int64_t step)> own{};

  /// Returns the rate of a step, counted from 1. Step k of a warm-up of n steps has peak * k / n.
  [[nodiscard]] double at(std::int64_t step) const {
    const double rate = own ? own(step) : named(step);
    check(std::isfinite(rate), "learning rates are finite, but that of step ", step, " is ", rate);
    return rate;
  }

 private:
  [[nodiscard]] double named(std::int64_t step) const {
    check(std::isfinite(peak) && std::isfinite(final),
          "learning rates are finite, but the peak is ", peak, " and the final rate ", final);
    check(decay != Decay::step || step_every >= 1,
          "step decay drops the learning rate every step_every steps, but step_every is ",
          step_every, "; 1 or more would be right");
    check(decay == Decay::constant || decay == Decay::step || total_steps >= 1,
          "a learning rate that decays needs total_steps, but total_steps is ", total_steps,
          "; the number of the run's steps would be right");
    if (step <= warmup_steps)
      return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
    const auto after = static_cast<double>(step - 1 - warmup_steps);
    const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
    const double done = std::min(1.0, after / length);
    switch (decay) {
      case Decay::constant: return peak;
      case Decay::linear: return final + (peak - final) * (1 - done);
      case Decay::cosine:
        return final + (peak - final) * 0.5 * (1 + std::cos(3.141592653589793 * done));
      case Decay::polynomial: return final + (peak - final) * std::pow(1 - done, power);
      case Decay::step:
        return peak * std::pow(step_factor, std::floor(after / static_cast<double>(step_every)));
    }
    return peak;
  }
};

}  // namespace dhp
