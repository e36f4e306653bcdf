// How long work takes on one thread, whatever else the machine does.
#pragma once

#include <ctime>

namespace bench {

/// CPU seconds of this thread for work().
template <class Work>
[[nodiscard]] double thread_seconds(const Work& work) {
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
