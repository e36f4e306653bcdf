// Stopping: SIGTERM and its like ask a run to save and to end. Batch systems send SIGTERM before they take a machine away,
// SIGXCPU when the time is over, and a terminal that closes sends SIGHUP.
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
#include <vector>

namespace examples {

class Stopping {
 public:
  /// The exit status of a run that was asked to stop and has saved: EX_TEMPFAIL of sysexits.h, "try again".
  static constexpr int exit_status = 75;

  /// To be made before other threads of the process. Before begin_steps() a signal ends the process at once, with
  /// exit_status: whatever it waits for or reads, there is nothing to save. Afterwards asked() says so, and a second
  /// SIGTERM or SIGINT ends the process at once, as does the end of the grace.
  explicit Stopping(double grace_s)
      : grace_s_(grace_s),
        on_signal_(numbers(), [this](int number) { ask(number); }),
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

  /// From now on this process has something to save, or ranks that wait for it.
  void begin_steps() { steps_ = true; }
  /// Whether a signal has come.
  [[nodiscard]] bool asked() const { return asked_; }

 private:
  static std::vector<int> numbers() {
    std::vector<int> made{SIGTERM, SIGINT, SIGXCPU};
    struct sigaction hangup {};
    // nohup has it ignored, and a signal that is blocked would come all the same.
    if (::sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN)
      made.push_back(SIGHUP);
    return made;
  }
  void ask(int number) {
    if (!steps_) {
      std::fprintf(stderr,
                   "stops before the first step, as signal %d asked: there is nothing to save\n",
                   number);
      ::_exit(exit_status);
    }
    if (asked_.exchange(true)) {
      if (number == SIGTERM || number == SIGINT) ::_exit(128 + number);
      return;  // the system repeats the others
    }
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
  std::atomic<bool> steps_{false};
  std::atomic<bool> asked_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int number_ = 0;
  bool over_ = false;
  OnSignal on_signal_;
  std::thread clock_;
};

}  // namespace examples
