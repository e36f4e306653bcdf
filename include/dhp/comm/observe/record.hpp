// CallRecording: writes every call of a communicator into its rank's flight recorder. The failure detector reads what is
// there, so each world of ranks on the host is observed by it.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/observe/observer.hpp>
#include <dhp/comm/watch/flight_recorder.hpp>

#include <memory>
#include <utility>

namespace dhp {

class CallRecording final : public CommObserver<Cpu> {
 public:
  explicit CallRecording(comm::GroupRecorder group) : group_(std::move(group)) {}

  [[nodiscard]] std::unique_ptr<Watch> before(Cpu*, const Call& call) override {
    return std::make_unique<Recorded>(group_.begin(call));
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Cpu>> of_part(Comm<Cpu> part,
                                                           CallSite where) override {
    Cpu dev;
    const auto members = gather(dev, part, {static_cast<double>(group_.rank())}, where);
    return std::make_shared<CallRecording>(group_.of_part({members.begin(), members.end()}));
  }

 private:
  class Recorded final : public Watch {
   public:
    explicit Recorded(FlightRecorder::Open open) : open_(std::move(open)) {}

   private:
    FlightRecorder::Open open_;
  };
  comm::GroupRecorder group_;
};

}  // namespace dhp
