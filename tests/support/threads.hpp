// Threads of a test.
#pragma once

#include <tests/support/test.hpp>

namespace tests {

/// Runs body(i) for each i in [0, count) on a thread of its own, and returns when all threads have ended.
inline void on_threads(std::size_t count, const auto& body) {
  std::vector<std::jthread> threads;
  for (std::size_t at = 0; at < count; ++at) threads.emplace_back([&body, at] { body(at); });
}

}  // namespace tests
