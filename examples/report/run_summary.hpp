// The summary at a run's end: its best and last values, the parts of its time, and how much of the peak FLOP it used.
#pragma once

#include <dhp/core/text.hpp>
#include <dhp/core/wait_clock.hpp>
#include <dhp/train/checkpoint_folder.hpp>

#include "progress.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Parts of a rank's time; their sum is the whole time.
enum class Part { compute, collectives, messages, data, evaluation, saving, rest };
inline constexpr std::array part_names{"compute",    "communication", "pipeline",     "data",
                                       "evaluation", "checkpoints",   "start and end"};
using PartSeconds = std::array<double, part_names.size()>;
[[nodiscard]] inline double seconds_in(const PartSeconds& seconds, Part part) {
  return seconds[static_cast<std::size_t>(part)];
}

/// Attributes the time of a rank's thread to one part after another. Waits for other ranks do not count as compute.
class TimeParts {
 public:
  /// waits: null if waits are not counted.
  explicit TimeParts(std::shared_ptr<const dhp::WaitClock> waits) : waits_(std::move(waits)) {}

  /// Starts a part; returns the previous one.
  Part enter(Part part) {
    const auto now = Clock::now();
    const double spent_s = std::chrono::duration<double>(now - since_).count();
    since_ = now;
    const double collectives_s = waited(dhp::WaitClock::collectives);
    const double messages_s = waited(dhp::WaitClock::messages);
    if (part_ == Part::compute) {
      of(Part::collectives) += collectives_s;
      of(Part::messages) += messages_s;
      of(Part::compute) += spent_s - collectives_s - messages_s;
    } else {
      of(part_) += spent_s;
    }
    return std::exchange(part_, part);
  }
  [[nodiscard]] PartSeconds seconds() {
    enter(part_);
    return seconds_;
  }

  /// Attributes time to a part until the end of the block.
  class In : dhp::detail::NonCopyable {
   public:
    In(TimeParts& parts, Part part) : parts_(parts), before_(parts.enter(part)) {}
    ~In() { parts_.enter(before_); }

   private:
    TimeParts& parts_;
    Part before_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] double& of(Part part) { return seconds_[static_cast<std::size_t>(part)]; }
  /// Returns the seconds of waits since the last call.
  [[nodiscard]] double waited(dhp::WaitClock::Of of) {
    if (!waits_) return 0;
    auto& known = known_s_[of];
    return waits_->seconds(of) - std::exchange(known, waits_->seconds(of));
  }

  std::shared_ptr<const dhp::WaitClock> waits_;
  Part part_ = Part::rest;
  Clock::time_point since_ = Clock::now();
  std::array<double, 2> known_s_{};
  PartSeconds seconds_{};
};

/// The last and the best value of a measure.
struct BestValue {
  std::string name;
  double last = 0, best = 0;
  std::int64_t best_step = 0;
  int times = 1;      ///< number of values
  bool stays = true;  ///< all values are equal

  /// Takes a value; any number is better than NaN.
  void take(std::int64_t step, double value) {
    const bool lowest = dhp::lower_is_better(name);
    ++times;
    stays = stays && value == last;
    last = value;
    if (!(lowest ? value < best : value > best) && !(std::isnan(best) && value == value)) return;
    best = value;
    best_step = step;
  }
};
class BestValues {
 public:
  void take(std::int64_t step, const std::string& name, double value) {
    for (auto& known : values_)
      if (known.name == name) return known.take(step, value);
    values_.push_back({.name = name, .last = value, .best = value, .best_step = step});
  }
  [[nodiscard]] const std::vector<BestValue>& all() const { return values_; }

 private:
  std::vector<BestValue> values_;
};

/// Totals of a run over all ranks.
struct RunSummary {
  std::int64_t steps_before = 0, last_step = 0;  ///< the run did steps (steps_before, last_step]
  int ranks = 1;
  double samples = 0, tokens = 0;  ///< samples and tokens trained on
  double forward_flop = 0;         ///< FLOP of all these samples' forward passes, over all ranks
  PartSeconds seconds{};           ///< mean over the ranks
  bool sees_waits = true;          ///< otherwise compute includes the waits
  double peak_tflops = 0;          ///< peak of one rank; 0: unknown
  double energy_j = 0;             ///< energy of all ranks' GPUs; 0: unknown
  std::vector<BestValue> values{};

  [[nodiscard]] double wall_s() const {
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  }
  /// Returns the seconds of compute, waits and data, on which samples_per_s in --metrics is based.
  [[nodiscard]] double steps_s() const { return seconds[0] + seconds[1] + seconds[2] + seconds[3]; }
  /// Returns the FLOP of forward and backward; a backward counts as two forwards (Kaplan et al. 2020, section 2.1), and
  /// recomputation does not count (Chowdhery et al. 2022, "PaLM", appendix B).
  [[nodiscard]] double flop() const { return 3 * forward_flop; }
  [[nodiscard]] double flop_per_step() const {
    return flop() / static_cast<double>(last_step - steps_before);
  }
  [[nodiscard]] double tflops_of_rank() const { return flop() / steps_s() / ranks / 1e12; }
  [[nodiscard]] double utilization() const { return tflops_of_rank() / peak_tflops; }

  /// Returns lines of at most 80 columns; none if no step was done.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// Returns names and values for the last line of --metrics, in SI units.
  [[nodiscard]] std::vector<std::pair<std::string, double>> fields() const;
};

}  // namespace examples
