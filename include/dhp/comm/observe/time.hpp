// CallTiming measures how long a rank's thread blocks in a communicator's host calls.
#pragma once

#include <dhp/comm/observe/observer.hpp>
#include <dhp/core/wait_clock.hpp>

#include <memory>
#include <utility>

namespace dhp::detail {

class CallTiming final : public CommObserver<Cpu> {
 public:
  explicit CallTiming(std::shared_ptr<WaitClock> clock) : clock_(std::move(clock)) {}

  [[nodiscard]] std::unique_ptr<Watch> before(Cpu*, const CommCall& call) override {
    return std::make_unique<Holding<Cpu, WaitClock::Scope>>(
        clock_.get(), call.is_message() ? WaitClock::messages : WaitClock::collectives);
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Cpu>> of_part(Comm<Cpu>, CallSite) override {
    return std::make_shared<CallTiming>(clock_);
  }

 private:
  std::shared_ptr<WaitClock> clock_;
};

}  // namespace dhp::detail
