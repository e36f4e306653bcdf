// PeerComm: ranks that are processes, over any PeerTransport. A collective is done by its caller, at once, and the
// event that it returns is done: Progress gives it a thread where it is to overlap.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/peer_collectives.hpp>

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// One rank's handle, cheap to copy; used by one thread at a time. Buffers as ThreadComm's. Sums are in the order
/// of the ranks, and have the bits that they have between threads.
class PeerComm {
 public:
  /// The world. Collective: all ranks make theirs of transports that are connected.
  PeerComm(std::shared_ptr<ProcessWorld> world, std::shared_ptr<PeerTransport> transport)
      : state_(std::make_shared<State>(std::move(world), std::move(transport))) {}

  [[nodiscard]] int rank() const { return group().rank(); }
  [[nodiscard]] int size() const { return group().size(); }
  [[nodiscard]] int send_capacity() const { return capacity; }
  /// What carries bytes to the other ranks, "a and b" where they differ.
  [[nodiscard]] std::string transport() const {
    std::vector<std::string> kinds;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      auto kind = group().transport()->description(group().world_rank(other));
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
        kinds.push_back(std::move(kind));
    }
    std::string text;
    for (const auto& kind : kinds) append_text(text, concat(text.empty() ? "" : " and ", kind));
    return text.empty() ? "no other rank" : text;
  }

  Event<Cpu> all_reduce(Cpu&, View<Cpu> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current()) {
    auto call = begin("all_reduce", concat(" (", name_of(reduce), ")"), buffer, where);
    detail::PeerCollectives peers(group(), call);
    if (buffer.size_bytes() <= detail::PeerCollectives::small_bytes)
      peers.reduce_small(buffer.bytes(), buffer.bytes(), buffer.count(), buffer.dtype(), reduce);
    else peers.all_reduce(buffer.bytes(), buffer.count(), buffer.dtype(), reduce);
    return {};
  }
  Event<Cpu> reduce_scatter(Cpu&, ConstView<Cpu> in, View<Cpu> out,
                            CallSite where = CallSite::current()) {
    check(in.count() == out.count() * size() && in.dtype() == out.dtype(),
          "reduce_scatter: ", in.dtype(), " ", in.shape(), " is not ", size(), " blocks of ",
          out.dtype(), " ", out.shape());
    auto call = begin("reduce_scatter", "", in, where);
    const auto slice_of = [&](int rank) {
      return Range{rank * out.count(), (rank + 1) * out.count()};
    };
    detail::PeerCollectives(group(), call)
        .reduce_scatter(in.bytes(), out.bytes(), in.dtype(), Reduce::sum, slice_of,
                        [](std::int64_t, std::int64_t) {});
    return {};
  }
  Event<Cpu> all_gather(Cpu&, ConstView<Cpu> in, View<Cpu> out,
                        CallSite where = CallSite::current()) {
    check(out.count() == in.count() * size() && in.dtype() == out.dtype(),
          "all_gather: ", out.dtype(), " ", out.shape(), " is not ", size(), " blocks of ",
          in.dtype(), " ", in.shape());
    auto call = begin("all_gather", "", in, where);
    detail::PeerCollectives(group(), call).all_gather(in.bytes(), out.bytes(), in.size_bytes());
    return {};
  }
  Event<Cpu> broadcast(Cpu&, View<Cpu> buffer, int root, CallSite where = CallSite::current()) {
    check(root >= 0 && root < size(), "broadcast: no rank ", root, " in a group of ", size());
    auto call = begin("broadcast", concat(" from rank ", root), buffer, where);
    detail::PeerCollectives(group(), call).broadcast(buffer.bytes(), buffer.size_bytes(), root);
    return {};
  }
  Event<Cpu> all_to_all(Cpu&, ConstView<Cpu> in, View<Cpu> out,
                        CallSite where = CallSite::current()) {
    check(in.count() == out.count() && in.dtype() == out.dtype() && in.count() % size() == 0,
          "all_to_all: ", in.dtype(), " ", in.shape(), " and ", out.dtype(), " ", out.shape(),
          " are not ", size(), " equal blocks each");
    check(in.bytes() != out.bytes() || in.count() == 0, "all_to_all does not work in place");
    auto call = begin("all_to_all", "", in, where);
    detail::PeerCollectives(group(), call)
        .all_to_all(in.bytes(), out.bytes(), in.size_bytes() / static_cast<std::size_t>(size()));
    return {};
  }

  void send(Cpu&, Tensor<Cpu> message, int to, CallSite where = CallSite::current()) {
    check(to >= 0 && to < size() && to != rank(), "send: rank ", rank(), " of ", size(),
          " cannot send to rank ", to);
    auto& edge = state_->edge(to);
    const Turn turn(edge.sending, "send", where);
    if (edge.sent.size() >= capacity) {
      edge.sent.front().wait(to);
      edge.sent.pop_front();
    }
    auto call = group().message(true, to, text(message), message.size_bytes(), where);
    edge.sent.emplace_back(std::move(call), std::move(message), to);
  }
  void recv(Cpu&, View<Cpu> message, int from, CallSite where = CallSite::current()) {
    check(from >= 0 && from < size() && from != rank(), "recv: rank ", rank(), " of ", size(),
          " cannot receive from rank ", from);
    const Turn turn(state_->edge(from).receiving, "recv", where);
    auto call = group().message(false, from, text(message), message.size_bytes(), where);
    auto transfer = call.receive(message.bytes(), message.size_bytes(), from);
    call.wait(transfer, from);
  }
  void barrier(CallSite where = CallSite::current()) {
    auto call = group().collective("barrier", "barrier", 0, where);
    detail::PeerCollectives(group(), call).barrier();
  }

  [[nodiscard]] PeerComm split(int color, int key, CallSite where = CallSite::current()) {
    struct Wish {
      std::int32_t color, key;
      std::uint32_t next_group;
    };
    const auto count = static_cast<std::size_t>(size());
    std::vector<Wish> wishes(count);
    const Wish mine{color, key, *state_->next_group};
    {
      auto call = group().collective("split", "split", sizeof mine, where);
      detail::PeerCollectives(group(), call)
          .all_gather(reinterpret_cast<const std::byte*>(&mine),
                      reinterpret_cast<std::byte*>(wishes.data()), sizeof mine);
    }
    // Later than every group that any of these ranks is in; groups of other colours share no rank with this one.
    std::uint32_t id = 0;
    for (const auto& wish : wishes) id = std::max(id, wish.next_group);
    *state_->next_group = id + 1;
    std::vector<int> chosen;
    for (int other = 0; other < size(); ++other)
      if (color < 0 ? other == rank() : wishes[static_cast<std::size_t>(other)].color == color)
        chosen.push_back(other);
    const auto key_of = [&](int other) { return wishes[static_cast<std::size_t>(other)].key; };
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](int left, int right) { return key_of(left) < key_of(right); });
    std::vector<int> members;
    int place = 0;
    for (const int other : chosen) {
      if (other == rank()) place = static_cast<int>(members.size());
      members.push_back(group().world_rank(other));
    }
    return PeerComm(std::make_shared<State>(
        std::make_unique<PeerGroup>(group().shared_world(), group().transport(), std::move(members),
                                    place, id),
        state_->next_group));
  }
  /// Ends every rank of the world with this message.
  void abort(const std::string& message) { group().world().abort(message); }

 private:
  static constexpr int capacity = 4;  // messages to one rank that nobody has received yet

  /// A message that has been sent and not yet been received.
  class Sent {
   public:
    Sent(PeerGroup::Call call, Tensor<Cpu> message, int to)
        : message_(std::move(message)), call_(std::move(call)) {
      transfer_ = call_.send_ahead(message_.view().bytes(), message_.size_bytes(), to);
    }
    void wait(int to) { call_.wait(transfer_, to); }

   private:
    Tensor<Cpu> message_;
    PeerGroup::Call call_;
    PeerTransport::Handle transfer_;  // goes before the message
  };

  /// With one other rank.
  struct Edge {
    std::deque<Sent> sent;
    std::atomic<bool> sending = false;
    std::atomic<bool> receiving = false;
  };

  struct State {
    State(std::shared_ptr<ProcessWorld> world, std::shared_ptr<PeerTransport> transport)
        : next_group(std::make_shared<std::uint32_t>(1)) {
      std::vector<int> all(static_cast<std::size_t>(transport->size()));
      std::iota(all.begin(), all.end(), 0);
      const int rank = transport->rank();
      group = std::make_unique<PeerGroup>(std::move(world), std::move(transport), std::move(all),
                                          rank, 0);
      edges = std::vector<Edge>(static_cast<std::size_t>(group->size()));
    }
    State(std::unique_ptr<PeerGroup> members, std::shared_ptr<std::uint32_t> next)
        : group(std::move(members)),
          edges(static_cast<std::size_t>(group->size())),
          next_group(std::move(next)) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    /// Messages under way arrive, unless something has gone wrong.
    ~State() {
      if (std::uncaught_exceptions() > exceptions || group->world().ended()) return;
      try {
        for (std::size_t to = 0; to < edges.size(); ++to)
          for (auto& sent : edges[to].sent) sent.wait(static_cast<int>(to));
      } catch (const std::exception&) {  // the world has ended, and says why at the next call
      }
    }
    [[nodiscard]] Edge& edge(int other) { return edges[static_cast<std::size_t>(other)]; }

    std::unique_ptr<PeerGroup> group;
    std::vector<Edge> edges;                    // by the other rank
    std::shared_ptr<std::uint32_t> next_group;  // one count for all groups of this rank
    int exceptions = std::uncaught_exceptions();
  };

  explicit PeerComm(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] PeerGroup& group() const { return *state_->group; }
  template <class AnyView>
  [[nodiscard]] static std::string text(const AnyView& view) {
    return concat("message of ", view.count(), " ", view.dtype());
  }
  template <class AnyView>
  [[nodiscard]] PeerGroup::Call begin(const char* operation, const std::string& option,
                                      const AnyView& view, CallSite where) {
    return group().collective(operation,
                              concat(operation, " of ", view.count(), " ", view.dtype(), option),
                              view.size_bytes(), where);
  }

  std::shared_ptr<State> state_;
};

static_assert(Communicator<PeerComm, Cpu>);
static_assert(!Communicator<PeerGroup, Cpu>);

}  // namespace dhp
