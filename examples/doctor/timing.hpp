// How a rank measures: the median of several runs, after one that is not counted. A rank that is slow on purpose works
// many times for each.
#pragma once

#include "faults.hpp"
#include "outliers.hpp"

#include <chrono>
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

/// Seconds of work(), which is issued to the device and waited for.
template <class Dev, class Work>
[[nodiscard]] double median_seconds(Dev& dev, int runs, bool slow, Work work) {
  std::vector<double> taken;
  for (int run = -1; run < runs; ++run) {
    const Stopwatch watch;
    for (int times = slow ? fault_slowdown : 1; times > 0; --times) work();
    dev.synchronize();
    if (run >= 0) taken.push_back(watch.seconds());
  }
  return median(std::move(taken));
}

}  // namespace examples::doctor
