// What benches have in common: the end of their main, and how long work takes.
#pragma once

#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>

namespace bench {

/// The exit status of a main that does body() if its arguments are right.
[[nodiscard]] int run_main(bool right, const char* usage, auto body) {
  if (!right) {
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

/// Seconds of the clock for work().
[[nodiscard]] double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// CPU seconds of this thread for work(), whatever else the machine does.
[[nodiscard]] double thread_seconds(auto&& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

}  // namespace bench
