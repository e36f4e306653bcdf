// NcclMessages: sends and receives of a group over NCCL. NCCL's own send waits, on its stream, for the receive; the
// device goes on meanwhile, and the tensor is kept: up to message_capacity messages to one rank wait to be
// received, then the device waits.
#pragma once

#include <dhp/comm/message_lanes.hpp>
#include <dhp/comm/nccl_channel.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace dhp {

class NcclMessages {
 public:
  /// Collective over the group: its first send or receive, whichever it is on a rank, makes the lanes.
  NcclMessages(NcclChannel& group, int ctas, CallSite where) {
    for (int lane = 0; lane < lanes_of(group.place().size); ++lane)
      lanes_.push_back(group.split(0, group.place().rank, ctas, where));
  }

  void send(Cuda& dev, Tensor<Cuda> message, int to, CallSite where) {
    auto& edge = edges_[to];
    auto& slot = edge.slots[edge.sent++ % message_capacity];
    wait_until_received(slot, dev);
    slot.recording = dev.recording_number();
    slot.message = std::move(message);
    const auto sent = slot.message.view();
    auto& lane = this->lane(lane_of(place().rank, to, place().size));
    slot.received =
        lane.issue(dev, {"send", where, sent.count(), sent.dtype(), "", to},
                   [&](ncclComm_t comm, cudaStream_t stream) {
                     return ncclSend(sent.bytes(), static_cast<std::size_t>(sent.count()),
                                     nccl_type(sent.dtype()), to, comm, stream);
                   });
  }
  void recv(Cuda& dev, View<Cuda> message, int from, CallSite where) {
    const auto count = static_cast<std::size_t>(message.count());
    const auto type = nccl_type(message.dtype());
    auto& lane = this->lane(lane_of(from, place().rank, place().size));
    lane.issue(dev, {"recv", where, message.count(), message.dtype(), "", from},
               [&](ncclComm_t comm, cudaStream_t stream) {
                 return ncclRecv(message.bytes(), count, type, from, comm, stream);
               })
        .before(dev.stream());
  }

 private:
  struct Slot {
    Tensor<Cuda> message;
    CudaEvent received;
    std::uint64_t recording = 0;  // that the send is a part of; 0: none
  };
  struct Edge {
    std::array<Slot, message_capacity> slots;
    std::uint64_t sent = 0;
  };
  // Then its message may be freed, in the order of the device's stream.
  static void wait_until_received(const Slot& slot, Cuda& dev) {
    // What is being recorded can only wait for what is, too.
    if (slot.recording == dev.recording_number()) slot.received.before(dev.stream());
    else if (slot.recording == 0) slot.received.wait();
    // Else it was recorded, and its memory is kept for the next run.
  }
  [[nodiscard]] NcclChannel& lane(int number) { return *lanes_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] const NcclChannel::Place& place() const { return lanes_.front()->place(); }

  std::map<int, Edge> edges_;  // by receiver; outlives the lanes, which wait for what is under way
  std::vector<std::shared_ptr<NcclChannel>> lanes_;
};

}  // namespace dhp
