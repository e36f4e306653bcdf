// ThreadPool: threads that share the tiles of one loop. Callers split sums independently of the number of threads, so
// that results have the same bits for any number.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/core/function_ref.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dhp::detail {
class ThreadPool : NonCopyable {
 public:
  /// threads: the total number, including the caller. If the system refuses a thread, the constructor joins the started
  /// threads and throws Error.
  explicit ThreadPool(int threads) {
    check(threads >= 1, "a thread pool needs at least 1 thread, got ", threads);
    int started = 1;
    workers_ = std::vector<std::thread>(as_size(threads - 1));
    try {
      for (auto& worker : workers_) {
        worker = std::thread([this] { work(); });
        ++started;
      }
    } catch (const std::exception& error) {
      const int failed = started + 1;
      stop();
      fail("thread ", failed, " of a pool of ", threads, " cannot be started (", error.what(),
           "); choose fewer, or raise the limits of processes and memory (ulimit -u, ulimit -v)");
    }
  }
  ~ThreadPool() { stop(); }

  [[nodiscard]] int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(tile) for each tile in [0, tiles), in any order on any thread, and blocks until all calls have
  /// returned. Rethrows the first exception. A nested loop runs serially in the calling thread.
  void run(std::int64_t tiles, FunctionRef<void(std::int64_t)> body) {
    // loop_ is set while bodies run, so a nested call of run() finds it set.
    if (workers_.empty() || tiles <= 1 || loop_ != nullptr) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) body(tile);
      return;
    }
    const Loop loop(body, tiles);
    {
      const std::lock_guard lock(mutex_);
      loop_ = &loop;
      busy_ = static_cast<int>(workers_.size());
      ++generation_;
    }
    wake_.notify_all();
    loop.drain();
    look_for([this] { return busy_ == 0; });
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    loop_ = nullptr;
    if (loop.error) std::rethrow_exception(loop.error);
  }

 private:
  struct Loop {
    Loop(FunctionRef<void(std::int64_t)> wrapped, std::int64_t count)
        : body(wrapped), tiles(count) {}
    void drain() const {
      for (auto tile = next.fetch_add(1); tile < tiles; tile = next.fetch_add(1)) {
        try {
          body(tile);
        } catch (...) {
          const std::lock_guard lock(error_mutex);
          if (!error) error = std::current_exception();
        }
      }
    }
    FunctionRef<void(std::int64_t)> body;
    std::int64_t tiles;
    mutable std::atomic<std::int64_t> next{0};
    mutable std::mutex error_mutex;
    mutable std::exception_ptr error;
  };

  /// Polls there() for up to 100 us, because waking a sleeping thread takes as long as a small loop. Meanwhile, it
  /// yields the core to other threads of the machine.
  static void look_for(const auto& there) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::microseconds(100);
    while (!there() && Clock::now() < end) std::this_thread::yield();
  }

  void work() {
    std::uint64_t seen = 0;
    for (;;) {
      look_for([&] { return generation_ != seen; });
      const Loop* loop = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
        if (stop_) return;
        seen = generation_;
        loop = loop_;
      }
      loop->drain();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_)
      if (worker.joinable()) worker.join();
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const Loop* loop_ = nullptr;
  std::atomic<std::uint64_t> generation_ = 0;
  std::atomic<int> busy_ = 0;
  bool stop_ = false;
};
}  // namespace dhp::detail
