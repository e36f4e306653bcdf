// Stopping: SIGTERM and similar signals ask a run to save and to end. Batch systems send SIGTERM before they take a
// machine away and SIGXCPU when the time is over; a closing terminal sends SIGHUP.
#pragma once

#include <dhp/core/on_signal.hpp>

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <thread>

namespace examples {

class Stopping : dhp::detail::NonCopyable {
 public:
  /// The exit status of a run that was asked to stop and has saved: EX_TEMPFAIL of sysexits.h, "try again".
  static constexpr int exit_status = 75;
  static constexpr const char* nothing =
      "stops before its first step, as a signal asked: there is nothing to save";

  /// Construct it first in main, before the process has other threads. Before begin_steps() a signal ends the process
  /// immediately with exit_status, since there is nothing to save. Afterwards a signal makes asked() true. A second
  /// SIGTERM or SIGINT, or the end of the grace period, then ends the process immediately.
  Stopping()
      : on_signal_({SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGALRM},
                   [this](int number) { ask(number); }) {}
  ~Stopping() { set_timer(0); }

  /// Call it if other ranks are gone. Waits briefly: a signal to all ranks may still arrive here and end this process.
  void await_signal() const {
    if (!steps_) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  /// From now on this process has state to save within grace_s seconds, or ranks that wait for it.
  void begin_steps(double grace_s) {
    grace_s_ = grace_s;
    steps_ = true;
  }
  /// Returns whether a signal has arrived.
  [[nodiscard]] bool asked() const { return first_ != 0; }

 private:
  /// Requests SIGALRM after this time; 0: none.
  static void set_timer(double seconds) {
    const auto us = static_cast<std::int64_t>(std::ceil(1e6 * std::min(seconds, 1e8)));
    itimerval timer{};
    timer.it_value = {us / 1000000, us % 1000000};
    (void)::setitimer(ITIMER_REAL, &timer, nullptr);
  }
  void ask(int number) {
    if (number == SIGALRM) {
      if (!asked()) return;  // sent by another process
      std::fprintf(stderr, "error: signal %d: the run has not saved within the grace of %g s\n",
                   first_.load(), grace_s_.load());
      ::_exit(128 + first_);
    }
    if (!steps_) {
      std::fprintf(stderr, "%s\n", nothing);
      ::_exit(exit_status);
    }
    // The system sends SIGXCPU again and again.
    if (asked() && (number == SIGTERM || number == SIGINT)) ::_exit(128 + number);
    if (asked()) return;
    first_ = number;
    set_timer(grace_s_);
  }

  std::atomic<double> grace_s_{0};
  std::atomic<bool> steps_{false};
  std::atomic<int> first_{0};  // the first signal; 0: none
  dhp::detail::OnSignal on_signal_;
};

}  // namespace examples
