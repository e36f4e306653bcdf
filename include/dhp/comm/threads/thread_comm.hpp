// ThreadComm is a communicator of threads in one process. All ranks work on a collective together, each on its own
// slice of all ranks' buffers. They reduce in rank order, so a sum has the same bits in every run.
#pragma once

#include <dhp/comm/reduce_slice.hpp>
#include <dhp/comm/threads/group.hpp>
#include <dhp/core/copy_bytes.hpp>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

/// One rank's handle, cheap to copy, used by one thread at a time. Buffers of different ranks never overlap. A rank's
/// `in` and `out` overlap only in calls that work in place, or in its own block of a reduce_scatter or an all_gather.
class ThreadComm {
 public:
  [[nodiscard]] static std::vector<ThreadComm> all_of(const std::shared_ptr<Latch>& latch,
                                                      int ranks) {
    const auto members = all_ranks(ranks);
    latch->waits = std::vector<Latch::Waits>(members.size());
    const auto group = std::make_shared<ThreadGroup>(latch, members);
    std::vector<ThreadComm> comms;
    for (const int rank : members) comms.push_back(ThreadComm(group, rank));
    return comms;
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] int send_capacity() const { return ThreadGroup::capacity; }
  [[nodiscard]] std::string transport() const { return "threads of one process"; }

  Event<Cpu> start(Cpu&, const Collective<Cpu>& collective) {
    const auto& [call, in, out] = collective;
    const ExclusiveUse use(group_->in_use(rank_), call.kind, call.where);
    const ThreadGroup::Offer offer{.call = call, .in = in.bytes(), .out = out.bytes()};
    if (call.kind == CallKind::all_reduce && in.size_bytes() <= ThreadGroup::note_bytes) {
      all_reduce_small(offer);
      return {};
    }
    group_->enter(rank_, offer);
    std::exception_ptr failure;
    try {
      work(collective);
    } catch (...) {  // out of memory
      failure = std::current_exception();
    }
    group_->leave(rank_);
    if (failure) std::rethrow_exception(failure);
    return {};
  }

  void send(Cpu&, Tensor<Cpu> message, int to, CallSite where) {
    auto& edge = group_->edge(rank_, to);
    const ExclusiveUse use(edge.sending, CallKind::send, where);
    const CommCall call{CallKind::send, message.count(), message.dtype(), Reduce::sum, to, where};
    group_->wait(edge, rank_, call, [&] { return !edge.full(); });
    auto& slot = edge.ring[edge.sent % ThreadGroup::capacity];
    slot.tensor = std::move(message);
    slot.where = where;
    ++edge.sent;
    edge.word.change();
  }
  void recv(Cpu&, View<Cpu> buffer, int from, CallSite where) {
    auto& edge = group_->edge(from, rank_);
    const ExclusiveUse use(edge.receiving, CallKind::recv, where);
    const CommCall call{CallKind::recv, buffer.count(), buffer.dtype(), Reduce::sum, from, where};
    group_->wait(edge, rank_, call, [&] { return !edge.none(); });
    auto& slot = edge.ring[edge.received % ThreadGroup::capacity];
    const auto& sent = slot.tensor;
    check(sent.dtype() == buffer.dtype() && sent.count() == buffer.count(), {"recv at ", where},
          where, ": rank ", group_->world_rank(rank_), " expects ", buffer.count(), " ",
          buffer.dtype(), ", rank ", group_->world_rank(from), " sent ", sent.count(), " ",
          sent.dtype(), " at ", slot.where);
    copy_bytes(buffer.bytes(), sent.view().bytes(), sent.size_bytes());
    slot.tensor = {};
    ++edge.received;
    edge.word.change();
  }
  void barrier(CallSite where) {
    const ExclusiveUse use(group_->in_use(rank_), CallKind::barrier, where);
    group_->enter(rank_, {.call = {.kind = CallKind::barrier, .where = where}});
  }
  [[nodiscard]] ThreadComm split(int color, int key, CallSite where) {
    const ExclusiveUse use(group_->in_use(rank_), CallKind::split, where);
    group_->enter(rank_,
                  {.call = {.kind = CallKind::split, .where = where}, .color_key = {color, key}});
    auto place = group_->take_place(rank_);
    return {std::move(place.group), place.rank};
  }
  /// Ends every rank of the world, not only of this group.
  void abort(const std::string& message) { group_->latch().abort(message); }

 private:
  ThreadComm(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] const std::byte* in_of(int rank) const { return group_->offer(rank).in; }

  void work(const Collective<Cpu>& collective) {
    const auto& [call, in, out] = collective;
    switch (call.kind) {
      case CallKind::all_reduce:
      case CallKind::reduce_scatter: return reduce(collective);
      case CallKind::all_gather: return gather(out, in.size_bytes(), 0);
      case CallKind::broadcast: return copy_bytes(out.bytes(), in_of(call.other), in.size_bytes());
      case CallKind::all_to_all: {
        const auto block = in.size_bytes() / as_size(size());
        return gather(out, block, as_size(rank_) * block);
      }
      case CallKind::shift:
        return copy_bytes(out.bytes(), in_of((rank_ + size() - 1) % size()), in.size_bytes());
      default: throw Error(concat(name_of(call.kind), " is no collective of buffers"), call.where);
    }
  }
  // Reduces this rank's slice of an all_reduce into all ranks' buffers, or this rank's block of a reduce_scatter.
  void reduce(const Collective<Cpu>& collective) {
    const auto& [call, in, out] = collective;
    const bool to_all = call.kind == CallKind::all_reduce;
    const auto part = to_all ? part_of(call.count, size(), rank_) : Range{0, out.count()};
    const auto block = to_all ? 0 : out.size_bytes() * as_size(rank_);
    Inputs from;
    Outputs to;
    for (int rank = 0; rank < size(); ++rank) {
      from.push_back(in_of(rank) + block);
      if (to_all) to.push_back(group_->offer(rank).out);
    }
    if (!to_all) to.push_back(out.bytes());
    reduce_slice(call.dtype, from, to, part.first, part.last, call.reduce);
  }
  /// Copies a block of every rank's `in`, from `offset` bytes on, to `out`.
  void gather(View<Cpu> out, std::size_t block, std::size_t offset) {
    for (int rank = 0; rank < size(); ++rank)
      copy_bytes(out.bytes() + as_size(rank) * block, in_of(rank) + offset, block);
  }
  // Waiting dominates a small all_reduce, so this waits only once: each rank publishes a copy, then reduces all copies.
  void all_reduce_small(const ThreadGroup::Offer& offer) {
    copy_bytes(group_->next_note(rank_), offer.in, offer.call.bytes());
    group_->enter(rank_, offer);
    Inputs from;
    for (int rank = 0; rank < size(); ++rank) from.push_back(group_->note(rank, rank_));
    reduce_slice(offer.call.dtype, from, {offer.out}, 0, offer.call.count, offer.call.reduce);
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

static_assert(Communicator<ThreadComm, Cpu>);

}  // namespace dhp::detail
