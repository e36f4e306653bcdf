// StopSignal: SIGTERM and SIGINT, from a batch system or a person, ask a run to save and end.
#pragma once

#include <dhp/core/on_signal.hpp>

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace dhp {

/// Make it before the process starts other threads, and pass it to TrainingRun::stop_when(). A second signal ends the
/// process immediately.
class StopSignal {
 public:
  StopSignal()
      : on_signal_({SIGTERM, SIGINT}, [this](int number) {
          if (asked_.exchange(true)) ::_exit(128 + number);
        }) {}

  [[nodiscard]] bool operator()() const { return asked_; }

 private:
  std::atomic<bool> asked_{false};
  detail::OnSignal on_signal_;
};

}  // namespace dhp
