#include <dhp/device/thread_pool.hpp>

#include <doctest/doctest.h>

#include <numeric>
#include <stdexcept>

namespace {

using dhp::ThreadPool;

TEST_CASE("pool: every tile once, whatever the number of threads, again and again") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const std::int64_t tiles : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> times(static_cast<std::size_t>(tiles));
      for (int round = 0; round < 20; ++round)
        pool.run(tiles, [&](std::int64_t tile) { ++times[static_cast<std::size_t>(tile)]; });
      for (const auto& count : times) CHECK(count == 20);
    }
  }
}

TEST_CASE("pool: what a tile throws arrives, the other tiles are done, and the pool goes on") {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 10; ++round) {
      std::atomic<int> done = 0;
      const auto body = [&](std::int64_t tile) {
        if (tile == 3) throw std::runtime_error("tile 3");
        ++done;
      };
      CHECK_THROWS_WITH_AS(pool.run(50, body), "tile 3", std::runtime_error);
      CHECK(done == 49);
    }
  }
}

TEST_CASE("pool: no threads is no pool") {
  CHECK_THROWS_WITH_AS(ThreadPool(0), doctest::Contains("at least 1 thread, got 0"), dhp::Error);
}

}  // namespace
