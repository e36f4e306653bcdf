// OnSignal: while it lives, a signal to this process does not end it, but has a function called by a thread that is
// there for nothing else: it may do what it likes, write a file for instance, which a signal handler may not.
#pragma once

#include <atomic>
#include <csignal>
#include <ctime>
#include <functional>
#include <thread>
#include <utility>

namespace examples {

/// A thread that takes no signal of the process from those that wait for it, also from those that are made later.
template <class Body>
[[nodiscard]] std::thread thread_without_signals(Body body) {
  sigset_t all{}, before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread made(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

class OnSignal {
 public:
  /// For signals like SIGUSR1. To be made before other threads of the process: those that were there before do not
  /// leave the signal to this one, and it ends the process. call() may not throw; signals that come while it
  /// runs are followed by one more call.
  OnSignal(int number, std::function<void()> call)
      : blocked_(number),
        call_(std::move(call)),
        thread_(thread_without_signals([this] { wait(); })) {}
  OnSignal(const OnSignal&) = delete;
  OnSignal& operator=(const OnSignal&) = delete;
  /// By the thread that has made it. Waits for a call that is under way.
  ~OnSignal() {
    stop_ = true;
    ::pthread_kill(thread_.native_handle(), blocked_.number());
    thread_.join();
  }

 private:
  /// Threads inherit it from the one that makes it.
  class Blocked {
   public:
    explicit Blocked(int number) : number_(number) {
      ::sigemptyset(&set_);
      ::sigaddset(&set_, number);
      ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    Blocked(const Blocked&) = delete;
    Blocked& operator=(const Blocked&) = delete;
    ~Blocked() {
      constexpr timespec at_once{};
      while (::sigtimedwait(&set_, nullptr, &at_once) == number_) {  // nobody is called any more
      }
      ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    void wait() const {
      // A process that was stopped comes back early.
      while (::sigwaitinfo(&set_, nullptr) != number_) {}
    }
    [[nodiscard]] int number() const { return number_; }

   private:
    int number_;
    sigset_t set_{};
    sigset_t before_{};
  };

  void wait() {
    for (blocked_.wait(); !stop_; blocked_.wait()) call_();
  }

  Blocked blocked_;
  std::function<void()> call_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace examples
