// NoPipeSignal: while it lives, writing to a connection that has broken is an error of the call, and not the signal
// SIGPIPE, which ends the process. For libraries that write without saying so to the system. Nothing changes for the
// other threads of the process, nor for this one afterwards.
#pragma once

#include <csignal>
#include <ctime>

namespace dhp::comm {

class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pending{};
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    constexpr timespec at_once{};
    if (!was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {  // it has been heard of
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

}  // namespace dhp::comm
