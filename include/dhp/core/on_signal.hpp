// While an OnSignal object lives, the given signals do not end the process but call a function on a dedicated thread.
// Unlike a signal handler, the function may do anything, such as write a file.
#pragma once

#include <dhp/core/config.hpp>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Starts a thread with all signals blocked: no signal handler runs on it, and it may receive signals by sigwaitinfo().
[[nodiscard]] std::thread thread_without_signals(auto body) {
  sigset_t all{}, before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread result(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

class OnSignal : NonCopyable {
 public:
  /// Handles signals such as SIGUSR1. Construct it before the process starts other threads: threads that exist already
  /// do not block the signals, which then end the process. call(number) must not throw. Signals that arrive during a
  /// call cause one more call per signal number. A signal that the process ignores causes none.
  OnSignal(std::vector<int> numbers, std::function<void(int)> call)
      : blocked_(std::move(numbers)),
        call_(std::move(call)),
        thread_(thread_without_signals([this] { wait(); })) {}
  /// Must run on the constructing thread. Waits for a call in progress.
  ~OnSignal() {
    stop_ = true;
    ::pthread_kill(thread_.native_handle(), blocked_.any());
    thread_.join();
  }

 private:
  /// Blocks the signals on the constructing thread and on the threads that it starts afterwards.
  class Blocked : NonCopyable {
   public:
    explicit Blocked(std::vector<int> numbers) : numbers_(std::move(numbers)) {
      ::sigemptyset(&set_);
      for (const int number : numbers_) ::sigaddset(&set_, number);
      ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    ~Blocked() {
      constexpr timespec at_once{};
      while (::sigtimedwait(&set_, nullptr, &at_once) > 0) {  // drops pending signals
      }
      ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    [[nodiscard]] int wait() const {
      // sigwaitinfo() may fail when a stopped process continues.
      for (;;)
        if (const int number = ::sigwaitinfo(&set_, nullptr); number > 0) return number;
    }
    [[nodiscard]] int any() const { return numbers_.front(); }

   private:
    std::vector<int> numbers_;
    sigset_t set_{}, before_{};
  };

  void wait() {
    for (int number = blocked_.wait(); !stop_; number = blocked_.wait())
      if (!is_ignored(number)) call_(number);
  }
  // A blocked signal arrives even if it is ignored, as SIGHUP is under nohup, and SIGINT behind the & of a script.
  [[nodiscard]] static bool is_ignored(int number) {
    struct sigaction now {};
    return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }

  Blocked blocked_;
  std::function<void(int)> call_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace dhp::detail
