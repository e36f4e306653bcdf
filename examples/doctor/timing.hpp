// How a rank measures: the median of several runs. A rank that is slow on purpose is held up in each.
#pragma once

#include "outliers.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace examples::doctor {

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Holds a rank up that is slow on purpose, for far longer than the work that `watch` has seen.
inline void hold_up(const Stopwatch& watch) {
  constexpr double least_s = 0.4, times = 40;
  std::this_thread::sleep_for(
      std::chrono::duration<double>(std::max(least_s, times * watch.seconds())));
}

/// Seconds of work(), which is issued to the device and waited for. A run repeats it for long enough to be measured where
/// ranks share cores.
template <class Dev, class Work>
[[nodiscard]] double median_seconds(Dev& dev, int runs, bool slow, Work work) {
  constexpr double least_run_s = 0.02;
  constexpr int slow_runs = 3;
  const auto seconds_of = [&](int times) {
    const Stopwatch watch;
    for (int time = 0; time < times; ++time) work();
    dev.synchronize();
    if (slow) hold_up(watch);
    return watch.seconds() / times;
  };
  static_cast<void>(seconds_of(1));  // not counted: what is done once for all
  const double once_s = seconds_of(1);
  const int times = std::clamp(static_cast<int>(least_run_s / once_s), 1, 1000);
  std::vector<double> taken;
  for (int run = 0; run < (slow ? slow_runs : runs); ++run) taken.push_back(seconds_of(times));
  return median(std::move(taken));
}

}  // namespace examples::doctor
