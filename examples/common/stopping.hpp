// Stopping: SIGTERM and SIGINT ask a run to save and to end. Batch systems send SIGTERM before they take a machine away.
#pragma once

#include "on_signal.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>

namespace examples {

class Stopping {
 public:
  /// The exit status of a run that was asked to stop and has saved: EX_TEMPFAIL of sysexits.h, "try again".
  static constexpr int exit_status = 75;

  /// To be made before other threads of the process. A second signal ends the process at once, and so does the end of
  /// the grace.
  explicit Stopping(double grace_s)
      : grace_s_(grace_s),
        on_term_(SIGTERM, [this] { ask(SIGTERM); }),
        on_interrupt_(SIGINT, [this] { ask(SIGINT); }),
        clock_(thread_without_signals([this] { watch(); })) {}
  Stopping(const Stopping&) = delete;
  Stopping& operator=(const Stopping&) = delete;
  ~Stopping() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    clock_.join();
  }

  /// Whether a signal has come.
  [[nodiscard]] bool asked() const { return asked_; }

 private:
  void ask(int number) {
    if (asked_.exchange(true)) ::_exit(128 + number);
    const std::lock_guard lock(mutex_);
    number_ = number;
    changed_.notify_all();
  }
  void watch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_ || number_ != 0; });
    const auto grace = std::chrono::duration<double>(grace_s_);
    if (changed_.wait_for(lock, grace, [this] { return over_; })) return;
    std::fprintf(stderr, "error: signal %d: the run has not saved within the grace of %g s\n",
                 number_, grace_s_);
    ::_exit(128 + number_);
  }

  double grace_s_;
  std::atomic<bool> asked_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int number_ = 0;
  bool over_ = false;
  OnSignal on_term_;
  OnSignal on_interrupt_;
  std::thread clock_;
};

}  // namespace examples
