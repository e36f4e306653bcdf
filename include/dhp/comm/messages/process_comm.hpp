// ProcessComm is a communicator of processes over a CPU engine's messages. Collectives run on the calling thread.
#pragma once

#include <dhp/comm/communicator.hpp>
#include <dhp/comm/latch.hpp>
#include <dhp/comm/messages/collectives.hpp>
#include <dhp/core/hash.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp::detail {

/// One rank's handle, cheap to copy, used by one thread at a time. Buffers follow the rules of ThreadComm.
class ProcessComm {
 public:
  /// Makes rank `rank` of the world. messages: the Messages of all ranks of the world.
  ProcessComm(std::shared_ptr<Latch> latch, int rank, int size, std::shared_ptr<Messages> messages)
      : state_(new State{std::move(latch), std::move(messages), all_ranks(size), rank, 0,
                         std::make_shared<std::uint32_t>(1)}) {}

  [[nodiscard]] int rank() const { return state_->rank; }
  [[nodiscard]] int size() const { return static_cast<int>(state_->members.size()); }
  [[nodiscard]] int send_capacity() const { return capacity; }
  [[nodiscard]] std::string transport() const { return state_->messages->description(); }

  Event<Cpu> start(Cpu&, const Collective<Cpu>& collective) {
    run(collective);
    return {};
  }
  void barrier(CallSite where) { run({.call = {.kind = CallKind::barrier, .where = where}}); }

  void send(Cpu&, Tensor<Cpu> message, int to, CallSite where) {
    auto& edge = state_->edge(to);
    const ExclusiveUse use(edge.sending, CallKind::send, where);
    state_->guarded([&] {
      if (edge.under_way.size() >= capacity) {
        edge.under_way.front()->wait();
        edge.under_way.pop_front();
      }
      const auto tag = state_->tag_of(message_kind, ++edge.sent, text(message));
      auto owner = std::make_shared<const Tensor<Cpu>>(std::move(message));
      const auto view = owner->view();
      edge.under_way.push_back(state_->messages->send(view.bytes(), view.size_bytes(),
                                                      state_->peer(to), tag, std::move(owner)));
    });
  }
  void recv(Cpu&, View<Cpu> buffer, int from, CallSite where) {
    auto& edge = state_->edge(from);
    const ExclusiveUse use(edge.receiving, CallKind::recv, where);
    state_->guarded([&] {
      auto& [early, transfer] = edge.expected;
      if (!transfer) return state_->begin_receive(buffer, from)->wait();
      check(text(early) == text(buffer), {"recv at ", where}, where, ": ", text(buffer), " where ",
            text(early), " was expected");
      transfer->wait();
      copy_bytes(buffer.bytes(), early.view().bytes(), buffer.size_bytes());
      edge.expected = {};
    });
  }
  void expect(Cpu& dev, DType dtype, const Shape& shape, int from, CallSite where) {
    auto& edge = state_->edge(from);
    const ExclusiveUse use(edge.receiving, CallKind::recv, where);
    if (edge.expected.transfer) return;
    edge.expected.message = Tensor<Cpu>(dev, dtype, shape);
    state_->guarded(
        [&] { edge.expected.transfer = state_->begin_receive(edge.expected.message.mut(), from); });
  }

  [[nodiscard]] ProcessComm split(int color, int key, CallSite where) {
    struct Place {
      ColorKey color_key;
      std::uint32_t next_group;
    };
    std::vector<Place> all(as_size(size()));
    const Place mine{{color, key}, *state_->next_group};
    std::shared_ptr<State> part;
    begin({.kind = CallKind::split, .where = where}, [&](std::uint64_t tag) {
      in_messages(tag).all_gather(reinterpret_cast<const std::byte*>(&mine),
                                  reinterpret_cast<std::byte*>(all.data()), sizeof mine);
      // The new id is above all group ids of these ranks. Groups of other colors may use it too, as they share no rank.
      std::uint32_t id = 0;
      std::vector<ColorKey> color_keys;
      for (const auto& each : all) {
        id = std::max(id, each.next_group);
        color_keys.push_back(each.color_key);
      }
      *state_->next_group = id + 1;
      const auto members = part_with(rank(), color_keys);
      const auto place =
          static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
      std::vector<int> world_ranks;
      for (const int member : members) world_ranks.push_back(state_->members[as_size(member)]);
      auto messages = state_->messages->of_part(members, place);
      part.reset(new State{state_->latch, messages ? std::move(messages) : state_->messages,
                           std::move(world_ranks), place, id, state_->next_group});
    });
    return ProcessComm(std::move(part));
  }
  /// Ends every rank of the world, not only of this group.
  void abort(const std::string& message) { state_->latch->abort(message); }

 private:
  static constexpr std::size_t capacity = 4;  // limit of unreceived messages to one rank
  static constexpr std::uint64_t collective_kind = 0, message_kind = 1;

  /// State of the exchange with one other rank.
  struct Edge {
    std::deque<Messages::Handle> under_way{};  // sent, not yet received
    struct {
      Tensor<Cpu> message{};
      Messages::Handle transfer{};  // destroyed before the memory that it fills
    } expected{};                   // message of the next recv, begun by expect()
    std::uint64_t sent = 0, received = 0;
    std::atomic<bool> sending = false, receiving = false;
  };

  struct State {
    /// Waits until pending messages are delivered, except after an error.
    ~State() {
      if (std::uncaught_exceptions() > exceptions || latch->ended()) return;
      try {
        guarded([&] {
          for (auto& edge : edges)
            for (const auto& sent : edge.under_way) sent->wait();
        });
      } catch (const std::exception&) {  // the world has ended; the next call throws the reason
      }
    }
    [[nodiscard]] Edge& edge(int other) { return edges[as_size(other)]; }
    [[nodiscard]] Peer peer(int other) const { return {other, members[as_size(other)]}; }
    /// Runs action(). If a connection breaks, finds the cause and throws it, the same one on all ranks.
    void guarded(auto action) {
      latch->check_alive();
      try {
        action();
      } catch (const PeerLost& error) {
        latch->check_alive();
        latch->lost(error.peer().world_rank, error.what());
      }
    }
    [[nodiscard]] Messages::Handle begin_receive(View<Cpu> buffer, int from) {
      const auto tag = tag_of(message_kind, ++edge(from).received, text(buffer));
      return messages->receive(buffer.bytes(), buffer.size_bytes(), peer(from), tag);
    }
    // Ranks that disagree have different tags, so they wait instead of reading wrong data. A tag has 20 bits of the
    // group's number, 18 of the call's, 24 of a hash of the agreed call, 1 of kind, 1 of phase. A number repeats long
    // after its call has ended.
    [[nodiscard]] std::uint64_t tag_of(std::uint64_t kind, std::uint64_t number,
                                       std::string_view agreed) const {
      auto hash = fnv1a(agreed);
      hash ^= hash >> 24 ^ hash >> 48;
      constexpr std::uint64_t number_mask = (1u << 18) - 1, hash_mask = (1u << 24) - 1;
      return std::uint64_t{id} << 44 | (number & number_mask) << 26 | (hash & hash_mask) << 2 |
             kind << 1;
    }

    std::shared_ptr<Latch> latch;
    std::shared_ptr<Messages> messages;
    std::vector<int> members;  // world ranks of the group
    int rank;
    std::uint32_t id;                           // number of the group
    std::shared_ptr<std::uint32_t> next_group;  // shared by all groups of this rank
    std::vector<Edge> edges = std::vector<Edge>(members.size());  // indexed by the other rank
    std::uint64_t collectives = 0;
    std::atomic<bool> in_use = false;
    Scratch scratch{};
    int exceptions = std::uncaught_exceptions();
  };

  explicit ProcessComm(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] static std::string text(const auto& view) {
    return concat(view.count(), " ", view.dtype());
  }
  [[nodiscard]] MessageCollective in_messages(std::uint64_t tag) {
    return {*state_->messages, state_->scratch, rank(), state_->members, tag};
  }
  void run(const Collective<Cpu>& collective) {
    begin(collective.call, [&](std::uint64_t tag) {
      if (const auto own = state_->messages->start(collective)) own->wait();
      else in_messages(tag).run(collective);
    });
  }
  void begin(const CommCall& call, auto action) {
    const ExclusiveUse use(state_->in_use, call.kind, call.where);
    const auto tag = state_->tag_of(collective_kind, ++state_->collectives, call.agreed());
    state_->guarded([&] { action(tag); });
  }

  std::shared_ptr<State> state_;
};

static_assert(Communicator<ProcessComm, Cpu>);

}  // namespace dhp::detail
