#include <dhp/device/thread_pool.hpp>
#include <tests/support/test.hpp>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <stdexcept>

namespace {

using dhp::detail::ThreadPool;

/// While it exists, there is memory for the stacks of `threads` more threads and for half of another stack.
class RoomForThreads {
 public:
  explicit RoomForThreads(int threads) {
    // Stacks are so large that half of one suffices for all other memory of threads and sanitizers.
    constexpr std::size_t stack_bytes = std::size_t{256} << 20;
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, stack_bytes);
    ::pthread_getattr_default_np(&usual_);
    ::pthread_setattr_default_np(&large);
    ::pthread_attr_destroy(&large);
    ::getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    auto limit = before_;
    limit.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) +
                     static_cast<std::size_t>(2 * threads + 1) * stack_bytes / 2;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  RoomForThreads(const RoomForThreads&) = delete;
  RoomForThreads& operator=(const RoomForThreads&) = delete;
  ~RoomForThreads() {
    ::setrlimit(RLIMIT_AS, &before_);
    ::pthread_setattr_default_np(&usual_);
    ::pthread_attr_destroy(&usual_);
  }

 private:
  pthread_attr_t usual_{};
  rlimit before_{};
};

TEST_CASE("pool: every tile runs once, for any number of threads") {
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

TEST_CASE("pool: a tile's exception is thrown after the other tiles, and the pool stays usable") {
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

TEST_CASE("pool: tiles run at the same time, one for each thread") {
  constexpr int threads = 3;
  ThreadPool pool(threads);
  std::atomic<int> begun = 0;
  std::atomic<int> met = 0;
  pool.run(threads, [&](std::int64_t) {
    ++begun;
    // Returns when all threads have begun. The limit is only reached if they do not.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (begun < threads && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    if (begun == threads) ++met;
  });
  CHECK(met == threads);
}

TEST_CASE("pool: a nested loop runs on its tile's thread") {
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> times(60);
    std::atomic<int> elsewhere = 0;
    for (int round = 0; round < 20; ++round)
      pool.run(6, [&](std::int64_t outer) {
        const auto here = std::this_thread::get_id();
        pool.run(10, [&](std::int64_t inner) {
          ++times[static_cast<std::size_t>(outer * 10 + inner)];
          if (std::this_thread::get_id() != here) ++elsewhere;
        });
      });
    for (const auto& count : times) CHECK(count == 20);
    CHECK(elsewhere == 0);
    const auto throwing = [&](std::int64_t) {
      pool.run(2, [](std::int64_t) { throw std::runtime_error("inside"); });
    };
    CHECK_THROWS_WITH_AS(pool.run(4, throwing), "inside", std::runtime_error);
  }
}

TEST_CASE("pool: a pool of 0 threads is refused") {
  CHECK_THROWS_WITH_AS(ThreadPool(0), Contains("at least 1 thread, got 0"), dhp::Error);
}

TEST_CASE("pool: if a thread cannot be started, the others end and an error is thrown") {
  const RoomForThreads room(2);
  for (int round = 0; round < 3; ++round) {  // the room is free again after each round
    CHECK_THROWS_WITH_AS(ThreadPool(8),
                         Contains("thread 4 of a pool of 8 cannot be started (Resource "
                                  "temporarily unavailable); choose fewer"),
                         dhp::Error);
    ThreadPool fits(3);
    std::atomic<int> done = 0;
    fits.run(100, [&](std::int64_t) { ++done; });
    CHECK(done == 100);
  }
}

}  // namespace
