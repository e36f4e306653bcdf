// Functions that benches share: the end of their main, and timers.
#pragma once

#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>

namespace bench {

/// Runs body() if the arguments are right, else prints the usage. Returns main's exit status.
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

/// Returns the wall-clock seconds of work().
[[nodiscard]] double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns the CPU seconds of this thread in work(), which other load does not change.
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
