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

/// Seconds of work(), which is issued to the device and waited for. A run repeats it for long enough to be measured
/// where ranks share cores. A rank that is slow on purpose has one run, since that takes as long as many.
template <class Dev, class Work>
[[nodiscard]] double median_seconds(Dev& dev, int runs, bool slow, Work work) {
  constexpr double least_run_s = 0.02;
  constexpr int trials = 4;  // the first one does what is done once for all
  const auto run = [&](int times) {
    for (int time = 0; time < times; ++time) work();
    dev.synchronize();
  };
  double once_s = least_run_s;
  for (int trial = 0; trial < trials; ++trial) {
    const Stopwatch watch;
    run(1);
    once_s = std::min(once_s, watch.seconds());
  }
  const int times = static_cast<int>(std::min(least_run_s / once_s, 1000.0));
  std::vector<double> taken;
  while (static_cast<int>(taken.size()) < (slow ? 1 : runs)) {
    const Stopwatch watch;
    run(times);
    if (slow) hold_up(watch);
    taken.push_back(watch.seconds() / times);
  }
  return median(std::move(taken));
}

}  // namespace examples::doctor
