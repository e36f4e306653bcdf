// WaitClock measures how long a rank's thread is blocked by other ranks, or by saving. Each wait reads the clock twice.
#pragma once

#include <dhp/core/config.hpp>

#include <array>
#include <chrono>
#include <thread>

namespace dhp {

/// Measures the waits of the constructing thread. Other threads' waits do not count, and a nested wait counts once.
class WaitClock {
 public:
  enum Of { collectives, messages, saves };

  /// Measures a wait that lasts until the end of the block.
  class Scope : detail::NonCopyable {
   public:
    /// clock may be null.
    Scope(WaitClock* clock, Of of) : clock_(clock != nullptr && clock->begins() ? clock : nullptr) {
      if (clock_ == nullptr) return;
      of_ = of;
      start_ = Clock::now();
    }
    ~Scope() {
      if (clock_ == nullptr) return;
      clock_->seconds_[of_] += std::chrono::duration<double>(Clock::now() - start_).count();
      clock_->waits_ = false;
    }

   private:
    WaitClock* clock_;
    Of of_ = collectives;
    std::chrono::steady_clock::time_point start_{};
  };

  /// Returns the time spent in waits. Only the constructing thread may call this function.
  [[nodiscard]] double seconds(Of of) const { return seconds_[of]; }

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] bool begins() {
    if (std::this_thread::get_id() != owner_ || waits_) return false;
    return waits_ = true;
  }

  std::thread::id owner_ = std::this_thread::get_id();
  bool waits_ = false;
  std::array<double, 3> seconds_{};
};

}  // namespace dhp
