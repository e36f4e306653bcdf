// BlockingWord: an atomic word whose changes other threads wait for. There are often more threads than cores, so a wait
// gives up the processor a few times and then blocks. std::atomic::wait does the same, but beside other work each yield
// costs a time slice of milliseconds; here a yield that took so long is the last one for a while.
#pragma once

#include <dhp/core/config.hpp>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <thread>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dhp::detail {

class BlockingWord {
 public:
  [[nodiscard]] std::uint32_t load() const { return word_.load(); }
  void add(std::uint32_t value) { word_ += value; }
  void set_bits(std::uint32_t bits) { word_ |= bits; }
  [[nodiscard]] bool exchange(std::uint32_t& expected, std::uint32_t value) {
    return word_.compare_exchange_weak(expected, value);
  }

  /// Returns when the word is not `seen`, or for no reason.
  void wait(std::uint32_t seen) const {
    if (!changes_soon(seen)) block(seen);
  }
  /// After a change.
  void notify_all() const {
    if (waiting_ != 0) wake();
  }

 private:
  [[nodiscard]] bool changes_soon(std::uint32_t seen) const {
    using Clock = std::chrono::steady_clock;
    constexpr int yields = 4, waits_without = 2048;
    constexpr auto slow =
        std::chrono::microseconds(200);  // no switch between threads takes so long
    if (busy_.load(std::memory_order_relaxed) > 0) {
      busy_.fetch_sub(1, std::memory_order_relaxed);
      return load() != seen;
    }
    for (int yield = 0; yield < yields; ++yield) {
      if (load() != seen) return true;
      const auto before = Clock::now();
      std::this_thread::yield();
      if (Clock::now() - before < slow) continue;
      busy_.store(waits_without, std::memory_order_relaxed);
      break;
    }
    return load() != seen;
  }
#ifdef __linux__
  void block(std::uint32_t seen) const {
    ++waiting_;  // before the kernel reads the word: who changes it later sees that somebody waits
    call(FUTEX_WAIT_PRIVATE, seen);
    --waiting_;
  }
  void wake() const { call(FUTEX_WAKE_PRIVATE, INT_MAX); }
  void call(int operation, std::uint32_t value) const {
    static_assert(sizeof(word_) == sizeof(std::uint32_t));
    ::syscall(SYS_futex, &word_, operation, value, nullptr, nullptr, 0);
  }
#else
  void block(std::uint32_t seen) const {
    ++waiting_;
    word_.wait(seen);
    --waiting_;
  }
  void wake() const { const_cast<std::atomic<std::uint32_t>&>(word_).notify_all(); }
#endif

  std::atomic<std::uint32_t> word_ = 0;
  mutable std::atomic<std::uint32_t> waiting_ = 0;
  mutable std::atomic<int> busy_ = 0;  // waits that will not yield
};

}  // namespace dhp::detail
