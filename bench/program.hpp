// Functions that benches share: the end of their main, timers, and the median.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <exception>
#include <vector>

namespace bench {

/// Runs body() if the arguments are right, else prints the usage. Returns main's exit status.
[[nodiscard]] int run_main(bool correct, const char* usage, auto body) {
  if (!correct) {
    std::fprintf(stderr, "usage: %s\n", usage);
    return 2;
  }
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

/// Returns the wall-clock seconds of work().
[[nodiscard]] double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns the reading of a clock of CPU seconds, which other load does not change.
[[nodiscard]] inline double cpu_now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
/// Returns the CPU seconds of this thread in work().
[[nodiscard]] double thread_seconds(auto&& work) {
  const double start = cpu_now(CLOCK_THREAD_CPUTIME_ID);
  work();
  return cpu_now(CLOCK_THREAD_CPUTIME_ID) - start;
}

[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace bench
