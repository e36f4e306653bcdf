// poll_until asks again and again, with growing pauses, until something is true.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace dhp::detail {

/// Calls done() until it returns true or the time is over, with growing pauses. Returns whether it returned true.
[[nodiscard]] bool poll_until(auto done, double timeout_s) {
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  for (double pause_s = 0.0005;; pause_s = std::min(2 * pause_s, 0.02)) {
    if (done()) return true;
    const double left_s = timeout_s - Seconds(std::chrono::steady_clock::now() - start).count();
    if (left_s <= 0) return false;
    std::this_thread::sleep_for(Seconds(std::min(pause_s, left_s)));
  }
}

}  // namespace dhp::detail
