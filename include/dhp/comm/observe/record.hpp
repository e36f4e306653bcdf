// CallRecording writes a communicator's host calls into its rank's flight recorder.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/observe/observer.hpp>
#include <dhp/comm/watch/watchdog.hpp>
#include <dhp/device/cpu.hpp>

#include <memory>
#include <utility>

namespace dhp::detail {
class CallRecording final : public CommObserver<Cpu> {
 public:
  explicit CallRecording(GroupRecorder group) : group_(std::move(group)) {}

  [[nodiscard]] std::unique_ptr<Watch> before(Cpu*, const CommCall& call) override {
    return std::make_unique<Holding<Cpu, FlightRecorder::Open>>(group_.begin(call));
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Cpu>> of_part(Comm<Cpu> part,
                                                           CallSite where) override {
    Cpu dev;
    return std::make_shared<CallRecording>(
        group_.of_part(rows_of_all<Cpu, int>(dev, part, {group_.rank()}, where)));
  }

 private:
  GroupRecorder group_;
};

/// Returns the communicator of all ranks of a world, with every call recorded.
[[nodiscard]] Comm<Cpu> recorded(const Watchdog& watchdog, auto engine) {
  GroupRecorder group(watchdog.recorder(engine.rank()), engine.rank(), watchdog.size());
  return observe<Cpu>(Comm<Cpu>::of(std::move(engine)),
                      std::make_shared<CallRecording>(std::move(group)));
}

}  // namespace dhp::detail
