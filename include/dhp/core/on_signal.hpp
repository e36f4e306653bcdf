// OnSignal: while it lives, signals to this process do not end it, but have a function called by a thread that is
// there for nothing else: it may do what it likes, write a file for instance, which a signal handler may not.
#pragma once

#include <dhp/core/config.hpp>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace dhp::detail {

/// A thread that blocks all signals, so that the process's signals go to the threads that wait for them.
[[nodiscard]] std::thread thread_without_signals(auto body) {
  sigset_t all{}, before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread made(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

class OnSignal : NonCopyable {
 public:
  /// For signals like SIGUSR1. To be made before other threads of the process: those that were there before do not
  /// leave the signals to this one, and they end the process. call(number) may not throw; signals that come while it
  /// runs are followed by one more call each.
  OnSignal(std::vector<int> numbers, std::function<void(int)> call)
      : blocked_(std::move(numbers)),
        call_(std::move(call)),
        thread_(thread_without_signals([this] { wait(); })) {}
  /// By the thread that has made it. Waits for a call that is under way.
  ~OnSignal() {
    stop_ = true;
    ::pthread_kill(thread_.native_handle(), blocked_.any());
    thread_.join();
  }

 private:
  /// Threads inherit it from the one that makes it.
  class Blocked : NonCopyable {
   public:
    explicit Blocked(std::vector<int> numbers) : numbers_(std::move(numbers)) {
      ::sigemptyset(&set_);
      for (const int number : numbers_) ::sigaddset(&set_, number);
      ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    ~Blocked() {
      constexpr timespec at_once{};
      while (::sigtimedwait(&set_, nullptr, &at_once) > 0) {  // drops what came: no call follows
      }
      ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    [[nodiscard]] int wait() const {
      // A process that was stopped comes back early.
      for (;;)
        if (const int number = ::sigwaitinfo(&set_, nullptr); number > 0) return number;
    }
    [[nodiscard]] int any() const { return numbers_.front(); }

   private:
    std::vector<int> numbers_;
    sigset_t set_{}, before_{};
  };

  void wait() {
    for (int number = blocked_.wait(); !stop_; number = blocked_.wait()) call_(number);
  }

  Blocked blocked_;
  std::function<void(int)> call_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace dhp::detail
