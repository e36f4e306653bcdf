// ThreadGroup: what the ranks of one communicator share: the place where they meet, what each brings to a
// collective, and the messages under way between any two of them.
#pragma once

#include <dhp/comm/thread_world.hpp>
#include <dhp/comm/turn.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

class ThreadGroup {
 public:
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
  };
  /// Where a rank goes when its group is split.
  struct Place {
    std::shared_ptr<ThreadGroup> group;
    int rank = 0;
  };

  explicit ThreadGroup(const std::vector<int>& world_ranks)
      : members_(world_ranks.size()), edges_(world_ranks.size() * world_ranks.size()) {
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      members_[rank].world_rank = world_ranks[rank];
  }

  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] int world_rank(int rank) const { return member(rank).world_rank; }
  /// Of the collective under way; to be read between enter() and leave() only.
  [[nodiscard]] const Offer& offer(int rank) const { return member(rank).offer; }
  /// After enter() of a split.
  [[nodiscard]] Place take_place(int rank) { return std::move(member(rank).place); }

  /// Returns when all ranks have come and agree about what they do. Otherwise it throws on every one of them:
  /// nobody uses the buffer of a rank that is gone.
  void enter(ThreadWorld& world, int rank, const Offer& offer) {
    Arrival call(*this, rank, offer);
    world.begin(call);
    const bool complete = meet(&ThreadGroup::settle, true);
    world.leave(call);
    if (!complete) world.check_alive();
    if (!disagreement_.empty()) throw Error(disagreement_, offer.where);
  }
  /// After enter(): returns when all ranks are done with each other's buffers. Each gets here in bounded
  /// time, and none may go earlier, not even when the world ends.
  void leave() { meet(nullptr, false); }

  /// A few bytes that a rank brings along to its next collective, and that others read after enter() without
  /// a leave(): two by turns, since who reads may be one collective behind.
  static constexpr std::size_t note_bytes = 512;
  [[nodiscard]] std::byte* next_note(int rank) {
    return member(rank).notes[(member(rank).entered + 1) % 2].data();
  }
  /// `reader`: the rank that asks, which has entered and whose count of collectives is the current one.
  [[nodiscard]] const std::byte* note(int rank, int reader) const {
    return member(rank).notes[member(reader).entered % 2].data();
  }

  [[nodiscard]] std::atomic<bool>& taken(int rank) { return member(rank).taken; }

  static constexpr int capacity = 4;  ///< messages between two ranks that nobody has received yet
  struct Message {
    Tensor<Cpu> tensor;
    CallSite where{};
  };
  /// The messages from one rank to another. One thread sends, one receives: the ring needs no lock.
  struct Edge {
    std::array<Message, capacity> ring;
    std::atomic<std::uint64_t> sent = 0;
    std::atomic<std::uint64_t> received = 0;
    Signal signal;
    std::atomic<bool> sending = false;
    std::atomic<bool> receiving = false;
    [[nodiscard]] bool full() const { return sent - received >= capacity; }
    [[nodiscard]] bool none() const { return sent == received; }
  };
  [[nodiscard]] Edge& edge(int from, int to) {
    return edges_[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }

 private:
  struct alignas(64) Member {
    int world_rank = 0;
    Offer offer;
    Place place;
    std::atomic<std::uint64_t> entered = 0;  ///< collectives that this rank has come to
    std::atomic<bool> taken = false;
    alignas(64) std::array<std::array<std::byte, note_bytes>, 2> notes;
  };
  [[nodiscard]] Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Member& member(int rank) const {
    return members_[static_cast<std::size_t>(rank)];
  }

  /// A rank that has come to a collective.
  class Arrival final : public ThreadWorld::Call {
   public:
    Arrival(ThreadGroup& group, int rank, const Offer& offer)
        : Call(group.world_rank(rank), offer.operation, offer.where, group.signal_),
          group_(&group) {
      auto& me = group.member(rank);
      me.offer = offer;
      number_ = ++me.entered;
    }
    [[nodiscard]] std::vector<int> missing() const override {
      std::vector<int> ranks;
      for (const auto& other : group_->members_)
        if (other.entered < number_) ranks.push_back(other.world_rank);
      return ranks;
    }

   private:
    ThreadGroup* group_;
    std::uint64_t number_;
  };

  // The last to come runs `last` for all, while the others wait, and lets everybody go. False: the world
  // ended before that.
  bool meet(void (ThreadGroup::*last)(), bool abortable) {
    const auto before = signal_.read();
    if (++arrivals_ == size()) {
      arrivals_ = 0;
      if (last != nullptr) (this->*last)();
      if (abortable) return signal_.change_unless_ended();
      signal_.change();
      return true;
    }
    for (;;) {
      const auto now = signal_.read();
      if (Signal::changed(before, now)) return true;
      if (abortable && Signal::ended(now)) return false;
      signal_.wait(now);
    }
  }

  void settle() {
    try {
      disagreement_.clear();
      const Offer& first = member(0).offer;
      for (int rank = 1; rank < size(); ++rank) {
        const Offer& other = member(rank).offer;
        if (std::string_view(first.operation) == other.operation && first.count == other.count &&
            first.dtype == other.dtype && first.option == other.option)
          continue;
        disagreement_ = concat("ranks do not agree: rank ", world_rank(0), " calls ", text(first),
                               ", rank ", world_rank(rank), " calls ", text(other));
        return;
      }
      if (std::string_view(first.operation) == "split") place_all();
    } catch (const std::exception& error) {  // no memory: all end with it
      disagreement_ = error.what();
    }
  }
  [[nodiscard]] static std::string text(const Offer& offer) {
    const std::string_view name(offer.operation);
    auto text = std::string(name);
    if (name != "barrier" && name != "split")
      append_text(text, concat(" of ", offer.count, " ", offer.dtype));
    if (name == "all_reduce")
      append_text(text, concat(" (", name_of(static_cast<Reduce>(offer.option)), ")"));
    if (name == "broadcast") append_text(text, concat(" from rank ", offer.option));
    return concat(text, " at ", to_text(offer.where));
  }

  // Ranks of one colour form a group, in the order of their keys, then of their ranks here.
  void place_all() {
    std::vector<int> order;
    for (int rank = 0; rank < size(); ++rank) order.push_back(rank);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const auto& left = member(a).offer;
      const auto& right = member(b).offer;
      return left.color != right.color ? left.color < right.color : left.key < right.key;
    });
    for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
      const int color = member(order[first]).offer.color;
      last = first + 1;  // a negative colour joins nobody
      while (color >= 0 && last < order.size() && member(order[last]).offer.color == color) ++last;
      std::vector<int> ranks;
      for (auto at = first; at < last; ++at) ranks.push_back(world_rank(order[at]));
      const auto group = std::make_shared<ThreadGroup>(ranks);
      for (auto at = first; at < last; ++at)
        member(order[at]).place = {group, static_cast<int>(at - first)};
    }
  }

  std::vector<Member> members_;
  std::vector<Edge> edges_;
  std::atomic<int> arrivals_ = 0;
  Signal signal_;
  std::string disagreement_;
};

}  // namespace dhp
