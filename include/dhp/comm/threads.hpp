// ThreadComm: ranks that are threads of one process. A collective is done by its callers: each rank works on
// its slice of everybody's buffers, in the order of the ranks whoever comes first, so that a sum has the
// same bits in every run.
#pragma once

#include <dhp/comm/thread_world.hpp>
#include <dhp/device/cpu.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

namespace dhp {

class ThreadComm {
 public:
  static constexpr int capacity = 4;  ///< messages between two ranks that nobody has received yet

  /// One rank's handle of the whole world.
  ThreadComm(std::shared_ptr<ThreadWorld> world, std::shared_ptr<struct ThreadGroup> group,
             int rank)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank) {}
  [[nodiscard]] static std::vector<ThreadComm> world_of(int ranks, double timeout_s);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const;
  [[nodiscard]] int send_capacity() const { return capacity; }
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
  void send(Cpu& dev, ConstView<Cpu> message, int to, CallSite where = CallSite::current());
  void recv(Cpu& dev, View<Cpu> message, int from, CallSite where = CallSite::current());
  void barrier(CallSite where = CallSite::current());
  [[nodiscard]] ThreadComm split(int color, int key, CallSite where = CallSite::current());
  void abort(const std::string& message) { world_->abort(message); }

 private:
  struct Offer;
  template <class Work>
  void together(Offer offer, Work work);

  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

/// What a group shares.
struct ThreadGroup {
  struct Message {
    DType dtype;
    std::vector<std::byte> bytes;
  };
  /// What one rank brings to a collective.
  struct Offer {
    const char* operation = nullptr;
    CallSite where{};
    std::int64_t count = 0;
    DType dtype = DType::f32;
    int option = 0;  ///< the reduction, or the root
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    int color = 0;
    int key = 0;
    std::shared_ptr<ThreadGroup> made{};  ///< by split, at the first rank of a new group
  };

  explicit ThreadGroup(std::vector<int> world_ranks)
      : members(std::move(world_ranks)), offers(members.size()), arrived(members.size(), false) {}

  std::vector<int> members;  ///< world rank of each rank of the group
  std::vector<Offer> offers;
  std::vector<bool> arrived;
  int arrivals = 0;
  std::uint64_t generation = 0;
  ThreadWorld::WaitPoint barrier_point;
  std::map<std::pair<int, int>, std::deque<Message>> edges;  // (from, to)
  ThreadWorld::WaitPoint message_point;
};

struct ThreadComm::Offer : ThreadGroup::Offer {};

namespace detail {

/// All ranks of the group have come; then all go on.
inline void meet(ThreadWorld& world, ThreadGroup& group, int rank, const char* operation,
                 CallSite where) {
  const int me = group.members[static_cast<std::size_t>(rank)];
  std::uint64_t mine = 0;
  world.update(group.barrier_point, [&] {
    mine = group.generation;
    group.arrived[static_cast<std::size_t>(rank)] = true;
    if (++group.arrivals < static_cast<int>(group.members.size())) return;
    group.arrivals = 0;
    std::fill(group.arrived.begin(), group.arrived.end(), false);
    ++group.generation;
  });
  world.wait(
      group.barrier_point, me, operation, where, [&] { return group.generation != mine; },
      [&] {
        std::vector<int> missing;
        for (std::size_t other = 0; other < group.members.size(); ++other)
          if (!group.arrived[other]) missing.push_back(group.members[other]);
        return missing;
      });
}

/// out[i] of every rank = in_0[i] op in_1[i] op ..., for i in [first, last), 16-bit types summed in float.
template <class T>
void reduce_slice(const std::vector<const T*>& in, const std::vector<T*>& out, std::int64_t first,
                  std::int64_t last, Reduce reduce) {
  using A = std::conditional_t<is_16_bit<T>, float, T>;
  constexpr std::int64_t block = 1024;  // stays in the first-level cache
  A total[block];
  for (std::int64_t begin = first; begin < last; begin += block) {
    const std::int64_t count = std::min(block, last - begin);
    for (std::int64_t at = 0; at < count; ++at) total[at] = static_cast<A>(in[0][begin + at]);
    for (std::size_t rank = 1; rank < in.size(); ++rank) {
      const T* from = in[rank] + begin;
      switch (reduce) {
        case Reduce::sum:
          for (std::int64_t at = 0; at < count; ++at)
            total[at] = static_cast<A>(total[at] + static_cast<A>(from[at]));
          break;
        case Reduce::max:
          for (std::int64_t at = 0; at < count; ++at)
            total[at] = std::max(total[at], static_cast<A>(from[at]));
          break;
        case Reduce::min:
          for (std::int64_t at = 0; at < count; ++at)
            total[at] = std::min(total[at], static_cast<A>(from[at]));
          break;
      }
    }
    for (T* to : out)
      for (std::int64_t at = 0; at < count; ++at) to[begin + at] = static_cast<T>(total[at]);
  }
}

}  // namespace detail

inline std::vector<ThreadComm> ThreadComm::world_of(int ranks, double timeout_s) {
  auto world = std::make_shared<ThreadWorld>(ranks, timeout_s);
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  auto group = std::make_shared<ThreadGroup>(members);
  std::vector<ThreadComm> comms;
  for (int rank = 0; rank < ranks; ++rank) comms.emplace_back(world, group, rank);
  return comms;
}

inline int ThreadComm::size() const { return static_cast<int>(group_->members.size()); }

// Everybody lays down an offer; all check that they agree; work(offers) does this rank's share; and nobody
// leaves before all are done with everybody's buffers.
template <class Work>
void ThreadComm::together(Offer offer, Work work) {
  auto& group = *group_;
  const auto operation = offer.operation;
  const auto where = offer.where;
  group.offers[static_cast<std::size_t>(rank_)] = std::move(offer);
  detail::meet(*world_, group, rank_, operation, where);
  const auto& first = group.offers[0];
  for (int rank = 1; rank < size(); ++rank) {
    const auto& other = group.offers[static_cast<std::size_t>(rank)];
    const bool same = std::string_view(first.operation) == other.operation &&
                      first.count == other.count && first.dtype == other.dtype &&
                      first.option == other.option;
    if (same) continue;
    const auto text = [](const ThreadGroup::Offer& of) {
      return concat(of.operation, " of ", of.count, " ", of.dtype, " (option ", of.option, ") at ",
                    to_text(of.where));
    };
    throw Error(
        concat("ranks do not agree: rank ", group.members[0], " calls ", text(first), ", rank ",
               group.members[static_cast<std::size_t>(rank)], " calls ", text(other)),
        where);
  }
  work(group.offers);
  detail::meet(*world_, group, rank_, operation, where);
}

inline Event<Cpu> ThreadComm::all_reduce(Cpu&, View<Cpu> buffer, Reduce reduce, CallSite where) {
  together({{.operation = "all_reduce",
             .where = where,
             .count = buffer.count(),
             .dtype = buffer.dtype(),
             .option = static_cast<int>(reduce),
             .in = buffer.bytes(),
             .out = buffer.bytes()}},
           [&](const std::vector<ThreadGroup::Offer>& offers) {
             visit_any(buffer.dtype(), [&]<class T>(Tag<T>) {
               std::vector<const T*> in;
               std::vector<T*> out;
               for (const auto& offer : offers) {
                 in.push_back(reinterpret_cast<const T*>(offer.in));
                 out.push_back(reinterpret_cast<T*>(offer.out));
               }
               const auto mine = part_of(buffer.count(), size(), rank_);
               detail::reduce_slice(in, out, mine.first, mine.last, reduce);
             });
           });
  return {};
}

inline Event<Cpu> ThreadComm::reduce_scatter(Cpu&, ConstView<Cpu> in, View<Cpu> out,
                                             CallSite where) {
  check(in.count() == out.count() * size() && in.dtype() == out.dtype(),
        "reduce_scatter: ", in.shape(), " is not ", size(), " blocks of ", out.shape());
  together({{.operation = "reduce_scatter",
             .where = where,
             .count = in.count(),
             .dtype = in.dtype(),
             .in = in.bytes()}},
           [&](const std::vector<ThreadGroup::Offer>& offers) {
             visit_any(in.dtype(), [&]<class T>(Tag<T>) {
               std::vector<const T*> blocks;
               for (const auto& offer : offers)
                 blocks.push_back(reinterpret_cast<const T*>(offer.in) + out.count() * rank_);
               detail::reduce_slice<T>(blocks, {out.template data<T>()}, 0, out.count(),
                                       Reduce::sum);
             });
           });
  return {};
}

inline Event<Cpu> ThreadComm::all_gather(Cpu&, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
  check(out.count() == in.count() * size() && in.dtype() == out.dtype(),
        "all_gather: ", out.shape(), " is not ", size(), " blocks of ", in.shape());
  together({{.operation = "all_gather",
             .where = where,
             .count = in.count(),
             .dtype = in.dtype(),
             .in = in.bytes()}},
           [&](const std::vector<ThreadGroup::Offer>& offers) {
             for (std::size_t rank = 0; rank < offers.size() && in.size_bytes() > 0; ++rank)
               std::memcpy(out.bytes() + rank * in.size_bytes(), offers[rank].in, in.size_bytes());
           });
  return {};
}

inline Event<Cpu> ThreadComm::broadcast(Cpu&, View<Cpu> buffer, int root, CallSite where) {
  check(root >= 0 && root < size(), "broadcast: no rank ", root, " in a group of ", size());
  together({{.operation = "broadcast",
             .where = where,
             .count = buffer.count(),
             .dtype = buffer.dtype(),
             .option = root,
             .in = buffer.bytes()}},
           [&](const std::vector<ThreadGroup::Offer>& offers) {
             if (rank_ != root && buffer.size_bytes() > 0)
               std::memcpy(buffer.bytes(), offers[static_cast<std::size_t>(root)].in,
                           buffer.size_bytes());
           });
  return {};
}

inline Event<Cpu> ThreadComm::all_to_all(Cpu&, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
  check(in.count() == out.count() && in.dtype() == out.dtype() && in.count() % size() == 0,
        "all_to_all: ", in.shape(), " and ", out.shape(), " are not ", size(), " equal blocks");
  const auto block = in.size_bytes() / static_cast<std::size_t>(size());
  together({{.operation = "all_to_all",
             .where = where,
             .count = in.count(),
             .dtype = in.dtype(),
             .in = in.bytes()}},
           [&](const std::vector<ThreadGroup::Offer>& offers) {
             for (std::size_t rank = 0; rank < offers.size() && block > 0; ++rank)
               std::memcpy(out.bytes() + rank * block,
                           offers[rank].in + static_cast<std::size_t>(rank_) * block, block);
           });
  return {};
}

inline void ThreadComm::barrier(CallSite where) {
  detail::meet(*world_, *group_, rank_, "barrier", where);
}

inline void ThreadComm::send(Cpu&, ConstView<Cpu> message, int to, CallSite where) {
  check(to >= 0 && to < size() && to != rank_, "send: rank ", rank_, " of ", size(),
        " cannot send to rank ", to);
  auto& group = *group_;
  ThreadGroup::Message copy{message.dtype(),
                            {message.bytes(), message.bytes() + message.size_bytes()}};
  const int me = group.members[static_cast<std::size_t>(rank_)];
  const int other = group.members[static_cast<std::size_t>(to)];
  bool sent = false;
  world_->wait(
      group.message_point, me, "send", where,
      [&] {
        if (sent) return true;
        auto& edge = group.edges[{rank_, to}];
        if (edge.size() >= static_cast<std::size_t>(capacity)) return false;
        edge.push_back(std::move(copy));
        group.message_point.notify_all();
        return sent = true;
      },
      [&] { return std::vector<int>{other}; });
}

inline void ThreadComm::recv(Cpu&, View<Cpu> message, int from, CallSite where) {
  check(from >= 0 && from < size() && from != rank_, "recv: rank ", rank_, " of ", size(),
        " cannot receive from rank ", from);
  auto& group = *group_;
  const int me = group.members[static_cast<std::size_t>(rank_)];
  const int other = group.members[static_cast<std::size_t>(from)];
  ThreadGroup::Message got{};
  bool received = false;
  world_->wait(
      group.message_point, me, "recv", where,
      [&] {
        if (received) return true;
        auto& edge = group.edges[{from, rank_}];
        if (edge.empty()) return false;
        got = std::move(edge.front());
        edge.pop_front();
        group.message_point.notify_all();
        return received = true;
      },
      [&] { return std::vector<int>{other}; });
  if (got.dtype != message.dtype() || got.bytes.size() != message.size_bytes())
    throw Error(concat("recv: rank ", other, " sent ", got.bytes.size(), " bytes of ", got.dtype,
                       ", rank ", me, " expects ", message.shape(), " of ", message.dtype()),
                where);
  if (!got.bytes.empty()) std::memcpy(message.bytes(), got.bytes.data(), got.bytes.size());
}

inline ThreadComm ThreadComm::split(int color, int key, CallSite where) {
  std::shared_ptr<ThreadGroup> joined;
  int new_rank = 0;
  together({{.operation = "split", .where = where, .color = color, .key = key}},
           [&](std::vector<ThreadGroup::Offer>& offers) {
             std::vector<std::pair<int, int>> order;  // (key, rank) of the ranks of my colour
             for (int rank = 0; rank < size(); ++rank) {
               const auto& offer = offers[static_cast<std::size_t>(rank)];
               const bool mine = color < 0 ? rank == rank_ : offer.color == color;
               if (mine) order.emplace_back(offer.key, rank);
             }
             std::sort(order.begin(), order.end());
             std::vector<int> members;
             for (std::size_t at = 0; at < order.size(); ++at) {
               if (order[at].second == rank_) new_rank = static_cast<int>(at);
               members.push_back(group_->members[static_cast<std::size_t>(order[at].second)]);
             }
             const int leader = order.front().second;
             if (leader == rank_)
               offers[static_cast<std::size_t>(rank_)].made =
                   std::make_shared<ThreadGroup>(std::move(members));
             detail::meet(*world_, *group_, rank_, "split", where);
             joined = offers[static_cast<std::size_t>(leader)].made;
           });
  return {world_, std::move(joined), new_rank};
}

static_assert(Communicator<ThreadComm, Cpu>);

}  // namespace dhp
