// Doorbell: a word in shared memory that threads of one process sleep on, and that other processes ring. Linux: futex(2)
// without its private flag; std::atomic's own wait is private to a process.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace dhp {

/// All zeros is a good one.
class Doorbell {
 public:
  /// Around everything that looks for something to do before it sleeps: a ring is free while nobody is here.
  class Listening {
   public:
    explicit Listening(Doorbell& bell) : bell_(&bell) { ++bell.listening_; }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    ~Listening() { --bell_->listening_; }
    /// To be read before the look.
    [[nodiscard]] std::uint32_t rings() const { return bell_->rings_; }
    /// Sleeps unless it has rung since `seen`, and no longer than that. False: that long, or about as long.
    bool sleep(std::uint32_t seen, long most_ms) const {
      const timespec limit{.tv_sec = most_ms / 1000, .tv_nsec = most_ms % 1000 * 1'000'000};
      ::syscall(SYS_futex, bell_->word(), FUTEX_WAIT, seen, &limit, nullptr, 0);
      return bell_->rings_ != seen;
    }
    [[nodiscard]] bool alone() const { return bell_->listening_ == 1; }

   private:
    Doorbell* bell_;
  };

  void ring() {
    ++rings_;
    if (listening_ > 0) ::syscall(SYS_futex, word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

 private:
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  [[nodiscard]] std::uint32_t* word() { return reinterpret_cast<std::uint32_t*>(&rings_); }

  std::atomic<std::uint32_t> rings_ = 0;
  std::atomic<std::uint32_t> listening_ = 0;
};

}  // namespace dhp
