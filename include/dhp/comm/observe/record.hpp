// CallRecording: writes every call of a communicator into its rank's flight recorder. The failure detector reads what is
// there, so each world of ranks on the host is observed by it.
#pragma once

#include <dhp/comm/observe/observer.hpp>
#include <dhp/comm/watch/flight_recorder.hpp>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

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
    const auto mine = Tensor<Cpu>::from_host(dev, {1}, std::vector<std::int32_t>{group_.rank()});
    auto members = Tensor<Cpu>::zeros(dev, DType::i32, {part.size()});
    part.all_gather(dev, mine, members.mut(), where).wait();
    return std::make_shared<CallRecording>(group_.of_part(members.to_host<std::int32_t>(dev)));
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
