// NcclMessages sends and receives a group's messages over NCCL. After a send the device continues; the tensor is kept
// until it is received. If message_capacity messages to one rank are unreceived, the next send makes the device wait.
#pragma once

#include <dhp/comm/nccl/channel.hpp>
#include <dhp/tensor/tensor.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Limit of unreceived messages to one rank; beyond it a send waits.
inline constexpr int message_capacity = 4;

/// Returns the number of a message's queue. Each queue is a communicator of all ranks; with only one, a ring of ranks
/// that send and receive would deadlock. Even and odd senders have a queue each; in an odd ring, messages between the
/// last and the first rank have a third. Messages between ranks that are not neighbors may wait for each other.
[[nodiscard]] constexpr int queue_of(int from, int to, int ranks) {
  const bool across = (from == ranks - 1 && to == 0) || (from == 0 && to == ranks - 1);
  return across && ranks > 2 && ranks % 2 != 0 ? 2 : from % 2;
}

class NcclMessages {
 public:
  /// Makes the queues. Collective over the group, at its first send or receive on any rank.
  NcclMessages(NcclChannel& group, int ctas, CallSite where) : place_(group.place()) {
    const int queues = place_.size % 2 == 0 ? 2 : 3;
    for (int queue = 0; queue < queues; ++queue)
      queues_.push_back(group.split(0, place_.rank, ctas, where));
  }

  void send(Cuda& dev, Tensor<Cuda> message, int to, CallSite where) {
    auto& edge = edges_[to];
    auto& slot = edge.slots[edge.sent++ % message_capacity];
    wait_until_received(slot, dev);
    slot.recording = dev.recording_id();
    slot.message = std::move(message);
    const auto sent = slot.message.view();
    slot.received = issue(dev, {CallKind::send, sent.count(), sent.dtype(), Reduce::sum, to, where},
                          place_.rank, to,
                          [&](auto... where_to) { return ncclSend(sent.bytes(), where_to...); });
  }
  void recv(Cuda& dev, View<Cuda> buffer, int from, CallSite where) {
    issue(dev, {CallKind::recv, buffer.count(), buffer.dtype(), Reduce::sum, from, where}, from,
          place_.rank, [&](auto... where_from) { return ncclRecv(buffer.bytes(), where_from...); })
        .before(dev.stream());
  }

 private:
  struct Slot {
    Tensor<Cuda> message;
    CudaEvent received;
    RecordingId recording{};  // the recording with this send
  };
  struct Edge {
    std::array<Slot, message_capacity> slots;
    std::uint64_t sent = 0;
  };
  // Makes the device wait until the slot's message is received; then its memory may be freed in stream order.
  static void wait_until_received(const Slot& slot, Cuda& dev) {
    // Recorded work can only wait for work of the same recording.
    if (slot.recording == dev.recording_id()) slot.received.before(dev.stream());
    else if (slot.recording == RecordingId()) slot.received.wait();
    // Otherwise the send was recorded, and its memory is kept for the next run.
  }
  CudaEvent issue(Cuda& dev, const CommCall& call, int from, int to, auto action) {
    auto& queue = *queues_[as_size(queue_of(from, to, place_.size))];
    return queue.issue(dev, call, [&](ncclComm_t comm, cudaStream_t stream) {
      const auto count = as_size(call.count);
      return action(count, nccl_type(call.dtype), call.other, comm, stream);
    });
  }

  NcclChannel::Place place_;
  std::map<int, Edge> edges_;  // by receiver; outlives the queues, which wait for the messages
  std::vector<std::shared_ptr<NcclChannel>> queues_;
};

}  // namespace dhp::detail
