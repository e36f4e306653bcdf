// Helpers of communicator tests: ranks that each return a result, and values known in closed form.
#pragma once

#include <dhp/watch.hpp>
#include <tests/support/tensors.hpp>
#include <tests/support/threads.hpp>

namespace tests {

// No test may hang, whatever is broken. Even on a busy machine, only a hang lasts this long.
inline constexpr double hang_s = 60;
inline const WatchOptions patient{.timeout_s = hang_s};

// Runs body(world, dev) on every rank and returns the results by rank. Tests assert afterwards, in one thread.
template <class Body>
auto on_ranks(int ranks, Body body, const WatchOptions& options = patient) {
  using Result = decltype(body(std::declval<Comm<Cpu>&>(), std::declval<Cpu&>()));
  std::vector<std::optional<Result>> results(static_cast<std::size_t>(ranks));
  run_ranks(
      ranks,
      [&](Comm<Cpu> world) {
        Cpu dev;
        results[static_cast<std::size_t>(world.rank())].emplace(body(world, dev));
      },
      options);
  std::vector<Result> values;
  for (auto& result : results) values.push_back(std::move(*result));
  return values;
}

inline void sleep_ms(double ms) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// f(i) for i in [0, count), as T.
template <class T, class F>
std::vector<T> generate(std::int64_t count, F f) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (is_16_bit<T>) values.push_back(T(static_cast<float>(f(i))));
    else values.push_back(static_cast<T>(f(i)));
  }
  return values;
}

// The same bits: -0 is not 0 here, and a NaN equals itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace tests
