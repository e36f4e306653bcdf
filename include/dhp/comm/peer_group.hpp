// PeerGroup: some processes of the world that do collectives together: who they are, how their transfers are
// told apart from those of other groups, and how a call of theirs is watched.
#pragma once

#include <dhp/comm/peer_transport.hpp>
#include <dhp/comm/process_world.hpp>
#include <dhp/comm/turn.hpp>
#include <dhp/core/hash.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

class PeerGroup {
 public:
  /// members: ranks of the world in the order of the group; id: differs from that of every other group that
  /// two of them are in.
  PeerGroup(std::shared_ptr<ProcessWorld> world, std::shared_ptr<PeerTransport> transport,
            std::vector<int> members, int rank, std::uint32_t id)
      : world_(std::move(world)),
        transport_(std::move(transport)),
        members_(std::make_shared<const std::vector<int>>(std::move(members))),
        rank_(rank),
        id_(id),
        name_(concat(id, "@", members_->front())),
        sent_(members_->size()),
        received_(members_->size()),
        at_end_(world_->on_end([held = transport_](const std::string&) { held->end(); })) {}

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_->size()); }
  [[nodiscard]] int world_rank(int rank) const {
    return (*members_)[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] ProcessWorld& world() const { return *world_; }
  [[nodiscard]] const std::shared_ptr<ProcessWorld>& shared_world() const { return world_; }
  [[nodiscard]] const std::shared_ptr<PeerTransport>& transport() const { return transport_; }

  /// Memory for a call, until the next one: what is allocated anew each time costs more in fresh pages than the
  /// transfer of as many bytes. Not filled with zeros.
  [[nodiscard]] std::byte* scratch(std::size_t bytes) {
    if (bytes > scratch_bytes_ || !scratch_) {
      scratch_.reset();
      scratch_bytes_ = 0;
      scratch_.reset(new std::byte[bytes]);
      scratch_bytes_ = bytes;
    }
    return scratch_.get();
  }

  /// A call under way: its transfers carry a tag that only the same call of the other ranks has, so that ranks
  /// which do not agree wait, and are found out, but never read what was not meant for them.
  class Call {
   public:
    Call(PeerGroup& group, Turn turn, LedgerEntry entry, std::uint64_t tag)
        : group_(&group),
          turn_(std::move(turn)),
          entry_(group.world().ledger(), std::move(entry)),
          tag_(tag) {
      group.world().check_alive();
    }

    using Handle = PeerTransport::Handle;

   private:
    template <class Action>
    auto guarded(int other, Action action) {
      try {
        return action(group_->world_rank(other));
      } catch (const PeerLost& error) {
        group_->world().check_alive();
        group_->world().lost(error.rank(), error.what());
      }
    }

   public:
    /// phase: transfers of different phases of one call do not meet.
    [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to, int phase = 0) {
      return guarded(to, [&](int peer) {
        return group_->transport_->send(data, bytes, peer, tag_ + phase_bit(phase));
      });
    }
    /// Of bytes that nobody waits for soon.
    [[nodiscard]] Handle send_ahead(const std::byte* data, std::size_t bytes, int to) {
      return guarded(
          to, [&](int peer) { return group_->transport_->send_ahead(data, bytes, peer, tag_); });
    }
    [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from, int phase = 0) {
      return guarded(from, [&](int peer) {
        return group_->transport_->receive(data, bytes, peer, tag_ + phase_bit(phase));
      });
    }
    /// Of the rank that it comes from or goes to.
    void wait(Handle& transfer, int other) {
      const int peer = group_->world_rank(other);
      entry_.waits_for(peer);
      const bool done = guarded(other, [&](int) { return transfer->wait(); });
      transfer.reset();
      if (!done) end(peer);
      entry_.waits_no_more();
    }

   private:
    [[nodiscard]] static std::uint64_t phase_bit(int phase) {
      return static_cast<std::uint64_t>(phase);
    }
    [[noreturn]] void end(int peer) {
      group_->world().check_alive();
      group_->world().lost(peer, "its transport has ended");
    }

    PeerGroup* group_;
    Turn turn_;
    Ledger::Call entry_;
    std::uint64_t tag_;
  };

  /// The next collective of this group. `what` is what all ranks must agree about.
  [[nodiscard]] Call collective(const char* operation, std::string what, std::size_t bytes,
                                CallSite where) {
    Turn turn(taken_, operation, where);
    const auto number = ++collectives_;
    const auto tag = tag_of(collective_kind, number, what);
    return Call(*this, std::move(turn),
                entry(concat(name_, "#", number), operation, std::move(what), bytes, where), tag);
  }
  /// The next message on an edge. One thread at a time for each way of an edge.
  [[nodiscard]] Call message(bool sends, int other, std::string what, std::size_t bytes,
                             CallSite where) {
    const auto number = ++(sends ? sent_ : received_)[static_cast<std::size_t>(other)];
    const int from = sends ? rank_ : other, to = sends ? other : rank_;
    const auto tag = tag_of(message_kind, number, what);
    auto key = concat(name_, ":", world_rank(from), ">", world_rank(to), "#", number);
    return Call(*this, Turn(),
                entry(std::move(key), sends ? "send" : "recv", std::move(what), bytes, where), tag);
  }

 private:
  static constexpr std::uint64_t collective_kind = 0;
  static constexpr std::uint64_t message_kind = 1;

  [[nodiscard]] LedgerEntry entry(std::string key, std::string operation, std::string what,
                                  std::size_t bytes, CallSite where) const {
    LedgerEntry made;
    made.key = std::move(key);
    made.operation = std::move(operation);
    made.what = std::move(what);
    made.bytes = static_cast<std::int64_t>(bytes);
    made.group = members_;
    made.where = where;
    return made;
  }
  // 20 bits of group, 18 of number, 24 of what, 1 of kind, 1 of phase. Numbers come round, long after the calls
  // that had them.
  [[nodiscard]] std::uint64_t tag_of(std::uint64_t kind, std::uint64_t number,
                                     std::string_view what) const {
    auto hash = fnv1a(what);
    hash ^= hash >> 24 ^ hash >> 48;
    constexpr std::uint64_t group_mask = (1u << 20) - 1, number_mask = (1u << 18) - 1,
                            hash_mask = (1u << 24) - 1;
    return (id_ & group_mask) << 44 | (number & number_mask) << 26 | (hash & hash_mask) << 2 |
           kind << 1;
  }

  std::shared_ptr<ProcessWorld> world_;
  std::shared_ptr<PeerTransport> transport_;
  std::shared_ptr<const std::vector<int>> members_;
  int rank_;
  std::uint32_t id_;
  std::string name_;  // groups of one id have no two ranks in common, but referees see all of them
  std::uint64_t collectives_ = 0;
  std::atomic<bool> taken_ = false;  // by a thread, for a collective
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::shared_ptr<void> at_end_;
};

}  // namespace dhp
