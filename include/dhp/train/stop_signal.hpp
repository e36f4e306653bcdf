// StopSignal: SIGTERM and SIGINT ask a run to save and to end, as batch systems and people do.
#pragma once

#include <dhp/core/on_signal.hpp>

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace dhp {

/// Make it before other threads of the process, and give it to TrainingRun::stop_when(). A second signal ends the
/// process at once.
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
