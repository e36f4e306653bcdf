// ThreadComm: ranks that are threads of one process. A collective is done by its callers, at once: each rank
// works on its slice of everybody's buffers, in the order of the ranks whoever comes first, so that a sum
// has the same bits in every run.
#pragma once

#include <dhp/comm/reduce_slice.hpp>
#include <dhp/comm/thread_group.hpp>
#include <dhp/core/copy_bytes.hpp>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// One rank's handle, cheap to copy; used by one thread at a time. Buffers of different ranks never overlap.
/// `in` and `out` of one rank do not overlap either, but for the rank's own block of a reduce_scatter or an
/// all_gather, which may then be the same memory.
class ThreadComm {
 public:
  /// The handles of a new world; timeout_s: time limit of every collective, 0: none.
  [[nodiscard]] static std::vector<ThreadComm> world_of(int ranks, double timeout_s) {
    return world_of(ranks, std::make_shared<Deadlines>(timeout_s));
  }
  [[nodiscard]] static std::vector<ThreadComm> world_of(
      int ranks, std::shared_ptr<const Deadlines> deadlines) {
    auto world = std::make_shared<ThreadWorld>(ranks, std::move(deadlines));
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
    const auto group = std::make_shared<ThreadGroup>(members);
    std::vector<ThreadComm> comms;
    for (int rank = 0; rank < ranks; ++rank) comms.push_back(ThreadComm(world, group, rank));
    return comms;
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] int send_capacity() const { return ThreadGroup::capacity; }
  [[nodiscard]] std::string transport() const { return "threads of one process"; }
  [[nodiscard]] const std::shared_ptr<ThreadWorld>& world() const { return world_; }

  Event<Cpu> all_reduce(Cpu& dev, View<Cpu> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current());
  Event<Cpu> reduce_scatter(Cpu& dev, ConstView<Cpu> in, View<Cpu> out,
                            CallSite where = CallSite::current());
  Event<Cpu> all_gather(Cpu& dev, ConstView<Cpu> in, View<Cpu> out,
                        CallSite where = CallSite::current());
  Event<Cpu> broadcast(Cpu& dev, View<Cpu> buffer, int root, CallSite where = CallSite::current());
  Event<Cpu> all_to_all(Cpu& dev, ConstView<Cpu> in, View<Cpu> out,
                        CallSite where = CallSite::current());
  void send(Cpu& dev, Tensor<Cpu> message, int to, CallSite where = CallSite::current());
  void recv(Cpu& dev, View<Cpu> message, int from, CallSite where = CallSite::current());
  void barrier(CallSite where = CallSite::current());
  [[nodiscard]] ThreadComm split(int color, int key, CallSite where = CallSite::current());
  /// Ends every rank of the world, not only of this group, with this message.
  void abort(const std::string& message) { world_->abort(message); }

 private:
  ThreadComm(std::shared_ptr<ThreadWorld> world, std::shared_ptr<ThreadGroup> group, int rank)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank) {}

  template <class Work>
  Event<Cpu> together(const ThreadGroup::Offer& offer, Work work);
  Event<Cpu> all_reduce_small(const ThreadGroup::Offer& offer);
  [[nodiscard]] const std::byte* in_of(int rank) const { return group_->offer(rank).in; }
  template <class Ready>
  void wait_for_edge(ThreadGroup::Edge& edge, const char* operation, int other, CallSite where,
                     Ready ready);

  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

// All come and agree, each does its share, work(), and nobody leaves before all are done.
template <class Work>
Event<Cpu> ThreadComm::together(const ThreadGroup::Offer& offer, Work work) {
  const Turn turn(group_->taken(rank_), offer.operation, offer.where);
  group_->enter(*world_, rank_, offer);
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  group_->leave();
  if (failure) std::rethrow_exception(failure);
  return {};
}

inline Event<Cpu> ThreadComm::all_reduce(Cpu&, View<Cpu> buffer, Reduce reduce, CallSite where) {
  const ThreadGroup::Offer offer{.operation = "all_reduce",
                                 .where = where,
                                 .count = buffer.count(),
                                 .dtype = buffer.dtype(),
                                 .option = static_cast<int>(reduce),
                                 .in = buffer.bytes(),
                                 .out = buffer.bytes()};
  if (buffer.size_bytes() <= ThreadGroup::note_bytes) return all_reduce_small(offer);
  const auto work = [&] {
    visit_any(buffer.dtype(), [&]<class T>(Tag<T>) {
      std::vector<const T*> in;
      std::vector<T*> out;
      for (int rank = 0; rank < size(); ++rank) {
        in.push_back(reinterpret_cast<const T*>(in_of(rank)));
        out.push_back(reinterpret_cast<T*>(group_->offer(rank).out));
      }
      const auto mine = part_of(buffer.count(), size(), rank_);
      detail::reduce_slice(in, out, mine.first, mine.last, reduce);
    });
  };
  return together(offer, work);
}

// What is small is dominated by meeting: everybody brings a copy and reduces them all, so that once is enough.
inline Event<Cpu> ThreadComm::all_reduce_small(const ThreadGroup::Offer& offer) {
  const Turn turn(group_->taken(rank_), offer.operation, offer.where);
  const auto bytes = static_cast<std::size_t>(offer.count) * size_of(offer.dtype);
  copy_bytes(group_->next_note(rank_), offer.in, bytes);
  group_->enter(*world_, rank_, offer);
  visit_any(offer.dtype, [&]<class T>(Tag<T>) {
    std::vector<const T*> in;
    for (int rank = 0; rank < size(); ++rank)
      in.push_back(reinterpret_cast<const T*>(group_->note(rank, rank_)));
    detail::reduce_slice<T>(in, {reinterpret_cast<T*>(offer.out)}, 0, offer.count,
                            static_cast<Reduce>(offer.option));
  });
  return {};
}

inline Event<Cpu> ThreadComm::reduce_scatter(Cpu&, ConstView<Cpu> in, View<Cpu> out,
                                             CallSite where) {
  check(in.count() == out.count() * size() && in.dtype() == out.dtype(),
        "reduce_scatter: ", in.dtype(), " ", in.shape(), " is not ", size(), " blocks of ",
        out.dtype(), " ", out.shape());
  const auto work = [&] {
    visit_any(in.dtype(), [&]<class T>(Tag<T>) {
      std::vector<const T*> blocks;
      for (int rank = 0; rank < size(); ++rank)
        blocks.push_back(reinterpret_cast<const T*>(in_of(rank)) + out.count() * rank_);
      detail::reduce_slice<T>(blocks, {reinterpret_cast<T*>(out.bytes())}, 0, out.count(),
                              Reduce::sum);
    });
  };
  return together({.operation = "reduce_scatter",
                   .where = where,
                   .count = in.count(),
                   .dtype = in.dtype(),
                   .in = in.bytes()},
                  work);
}

inline Event<Cpu> ThreadComm::all_gather(Cpu&, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
  check(out.count() == in.count() * size() && in.dtype() == out.dtype(),
        "all_gather: ", out.dtype(), " ", out.shape(), " is not ", size(), " blocks of ",
        in.dtype(), " ", in.shape());
  const auto work = [&] {
    const auto block = in.size_bytes();
    for (int rank = 0; rank < size(); ++rank)
      copy_bytes(out.bytes() + static_cast<std::size_t>(rank) * block, in_of(rank), block);
  };
  return together({.operation = "all_gather",
                   .where = where,
                   .count = in.count(),
                   .dtype = in.dtype(),
                   .in = in.bytes()},
                  work);
}

inline Event<Cpu> ThreadComm::broadcast(Cpu&, View<Cpu> buffer, int root, CallSite where) {
  check(root >= 0 && root < size(), "broadcast: no rank ", root, " in a group of ", size());
  return together({.operation = "broadcast",
                   .where = where,
                   .count = buffer.count(),
                   .dtype = buffer.dtype(),
                   .option = root,
                   .in = buffer.bytes()},
                  [&] { copy_bytes(buffer.bytes(), in_of(root), buffer.size_bytes()); });
}

inline Event<Cpu> ThreadComm::all_to_all(Cpu&, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
  check(in.count() == out.count() && in.dtype() == out.dtype() && in.count() % size() == 0,
        "all_to_all: ", in.dtype(), " ", in.shape(), " and ", out.dtype(), " ", out.shape(),
        " are not ", size(), " equal blocks each");
  check(in.bytes() != out.bytes() || in.count() == 0, "all_to_all does not work in place");
  const auto work = [&] {
    const auto block = in.size_bytes() / static_cast<std::size_t>(size());
    for (int rank = 0; rank < size(); ++rank)
      copy_bytes(out.bytes() + static_cast<std::size_t>(rank) * block,
                 in_of(rank) + static_cast<std::size_t>(rank_) * block, block);
  };
  return together({.operation = "all_to_all",
                   .where = where,
                   .count = in.count(),
                   .dtype = in.dtype(),
                   .in = in.bytes()},
                  work);
}

inline void ThreadComm::barrier(CallSite where) {
  const Turn turn(group_->taken(rank_), "barrier", where);
  group_->enter(*world_, rank_, {.operation = "barrier", .where = where});
}

inline ThreadComm ThreadComm::split(int color, int key, CallSite where) {
  const Turn turn(group_->taken(rank_), "split", where);
  group_->enter(*world_, rank_, {.operation = "split", .where = where, .color = color, .key = key});
  auto place = group_->take_place(rank_);
  return {world_, std::move(place.group), place.rank};
}

// Returns when ready(), which only the other end of the edge can bring about.
template <class Ready>
void ThreadComm::wait_for_edge(ThreadGroup::Edge& edge, const char* operation, int other,
                               CallSite where, Ready ready) {
  class Pending final : public ThreadWorld::Call {
   public:
    Pending(int me, const char* name, CallSite place, Signal& signal, int awaited, Ready& condition)
        : Call(me, name, place, signal), awaited_(awaited), ready_(&condition) {}
    [[nodiscard]] std::vector<int> missing() const override {
      return (*ready_)() ? std::vector<int>() : std::vector<int>{awaited_};
    }

   private:
    int awaited_;
    Ready* ready_;
  };

  world_->check_alive();
  if (ready()) return;
  Pending call(group_->world_rank(rank_), operation, where, edge.signal, group_->world_rank(other),
               ready);
  world_->begin(call);
  for (;;) {
    const auto word = edge.signal.read();
    if (ready() || Signal::ended(word)) break;
    edge.signal.wait(word);
  }
  world_->leave(call);
  world_->check_alive();
}

inline void ThreadComm::send(Cpu&, Tensor<Cpu> message, int to, CallSite where) {
  check(to >= 0 && to < size() && to != rank_, "send: rank ", rank_, " of ", size(),
        " cannot send to rank ", to);
  auto& edge = group_->edge(rank_, to);
  const Turn turn(edge.sending, "send", where);
  wait_for_edge(edge, "send", to, where, [&] { return !edge.full(); });
  auto& slot = edge.ring[edge.sent % ThreadGroup::capacity];
  slot.tensor = std::move(message);
  slot.where = where;
  ++edge.sent;
  edge.signal.change();
}

inline void ThreadComm::recv(Cpu&, View<Cpu> message, int from, CallSite where) {
  check(from >= 0 && from < size() && from != rank_, "recv: rank ", rank_, " of ", size(),
        " cannot receive from rank ", from);
  auto& edge = group_->edge(from, rank_);
  const Turn turn(edge.receiving, "recv", where);
  wait_for_edge(edge, "recv", from, where, [&] { return !edge.none(); });
  auto& slot = edge.ring[edge.received % ThreadGroup::capacity];
  const auto& sent = slot.tensor;
  if (sent.dtype() != message.dtype() || sent.count() != message.count())
    throw Error(
        concat("recv at ", to_text(where), ": rank ", group_->world_rank(rank_), " expects ",
               message.count(), " ", message.dtype(), ", rank ", group_->world_rank(from), " sent ",
               sent.count(), " ", sent.dtype(), " at ", to_text(slot.where)),
        where);
  copy_bytes(message.bytes(), sent.view().bytes(), sent.size_bytes());
  slot.tensor = {};
  ++edge.received;
  edge.signal.change();
}

static_assert(Communicator<ThreadComm, Cpu>);
static_assert(!Communicator<ThreadWorld, Cpu>);

}  // namespace dhp
