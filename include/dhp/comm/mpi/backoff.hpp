// Backoff: the pause between two looks at something that nobody announces, and that may move only while it is looked at.
// First look again at once, since an answer is often a microsecond away; then let others have the core; then sleep
// longer and longer, since a rank that waits for minutes needs its core for nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace dhp::comm {

class Backoff {
 public:
  /// eager_s: how long to look without a pause after something has moved.
  explicit Backoff(double eager_s) : eager_(eager_s) {}

  /// moved: whether the last look has found anything new.
  void operator()(bool moved) {
    const auto now = Clock::now();
    if (moved) {
      since_ = now;
      pause_ = shortest;
    }
    if (now - since_ < spinning) return;
    if (now - since_ < eager_)
      return std::this_thread::yield();  // there may be more ranks than cores
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, longest);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto spinning = std::chrono::microseconds(20);
  static constexpr auto shortest = std::chrono::microseconds(20);
  static constexpr auto longest = std::chrono::microseconds(1280);
  std::chrono::duration<double> eager_;
  Clock::time_point since_ = Clock::now();
  std::chrono::microseconds pause_ = shortest;
};

}  // namespace dhp::comm
