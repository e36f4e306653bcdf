// ThreadGroup is the state that a communicator's ranks share: which of them have arrived, buffers, and messages.
#pragma once

#include <dhp/comm/communicator.hpp>
#include <dhp/comm/latch.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace dhp::detail {

/// A word that threads block on. The upper 16 bits count changes, the lowest bit says that the world has ended, and the
/// bits between count other wake-ups. All are in one atomic word, so that every waiter sees the same order of the last
/// arrival and the end of the world. There are often more ranks than cores, so a wait yields a few times and then
/// blocks. std::atomic::wait yields too, but under load a yield can cost a time slice of milliseconds. After such a
/// slow yield, the next waits block immediately.
class WaitWord {
 public:
  [[nodiscard]] static bool ended(std::uint32_t word) { return (word & end_bit) != 0; }
  /// Returns whether a change was counted between two readings. The end of the world is no change.
  [[nodiscard]] static bool changed(std::uint32_t before, std::uint32_t now) {
    return before / one != now / one;
  }

  [[nodiscard]] std::uint32_t read() const { return word_; }
  /// Blocks until the word differs from `seen`. Returns false after `limit` (on Linux) or a spurious wake-up.
  bool wait(std::uint32_t seen, const std::timespec& limit) {
    if (!changes_soon(seen)) block(seen, limit);
    return word_ != seen;
  }

  void change() {
    word_ += one;
    wake_waiting();
  }
  /// Counts a change and returns true, unless the world has ended.
  [[nodiscard]] bool change_unless_ended() {
    auto word = word_.load();
    do {
      if (ended(word)) return false;
    } while (!word_.compare_exchange_weak(word, word + one));
    wake_waiting();
    return true;
  }
  /// Wakes all waiters when the world ends or a rank finishes. The 15-bit counter limits the calls to fewer than 2^15.
  void wake(bool ended) {
    if (ended) word_ |= end_bit;
    else word_ += 2;
    wake_waiting();
  }

 private:
  static constexpr std::uint32_t end_bit = 1;
  static constexpr std::uint32_t one = 1u << 16;

  [[nodiscard]] bool changes_soon(std::uint32_t seen) {
    using Clock = std::chrono::steady_clock;
    constexpr int yields = 4, waits_without = 2048;
    constexpr auto slow = std::chrono::microseconds(200);  // a slower yield ran another thread
    if (without_yields_.load(std::memory_order_relaxed) > 0) {
      without_yields_.fetch_sub(1, std::memory_order_relaxed);
      return word_ != seen;
    }
    for (int yield = 0; yield < yields; ++yield) {
      if (word_ != seen) return true;
      const auto before = Clock::now();
      std::this_thread::yield();
      if (Clock::now() - before < slow) continue;
      without_yields_.store(waits_without, std::memory_order_relaxed);
      break;
    }
    return word_ != seen;
  }
  void block(std::uint32_t seen, [[maybe_unused]] const std::timespec& limit) {
    ++waiting_;  // before the word is read again, so that a later writer sees the waiter
#ifdef __linux__
    futex(FUTEX_WAIT_PRIVATE, seen, &limit);
#else
    word_.wait(seen);
#endif
    --waiting_;
  }
  void wake_waiting() {
    if (waiting_ == 0) return;
#ifdef __linux__
    futex(FUTEX_WAKE_PRIVATE, INT_MAX);
#else
    word_.notify_all();
#endif
  }
#ifdef __linux__
  void futex(int operation, std::uint32_t value, const std::timespec* limit = nullptr) {
    static_assert(sizeof(word_) == sizeof(std::uint32_t));
    ::syscall(SYS_futex, &word_, operation, value, limit, nullptr, 0);
  }
#endif

  std::atomic<std::uint32_t> word_ = 0, waiting_ = 0;
  std::atomic<int> without_yields_ = 0;  // number of next waits that block without yielding
};

class ThreadGroup {
 public:
  /// One rank's part in a collective.
  struct Offer {
    CommCall call{};
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    ColorKey color_key{};
  };
  /// A rank's new group and rank after a split.
  struct Place {
    std::shared_ptr<ThreadGroup> group;
    int rank = 0;
  };

  /// world_ranks: the members, by which error messages name them.
  ThreadGroup(std::shared_ptr<Latch> latch, const std::vector<int>& world_ranks)
      : latch_(std::move(latch)),
        members_(world_ranks.size()),
        waits_(std::make_shared<Waits>(world_ranks.size())),
        on_change_(
            latch_->on_change([waits = waits_, of = latch_.get()] { waits->wake(of->ended()); })) {
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      members_[rank].world_rank = world_ranks[rank];
  }

  [[nodiscard]] Latch& latch() const { return *latch_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] int world_rank(int rank) const { return member(rank).world_rank; }
  /// Returns a rank's offer in the current collective. Valid only between enter() and leave().
  [[nodiscard]] const Offer& offer(int rank) const { return member(rank).offer; }
  [[nodiscard]] Place take_place(int rank) { return std::move(member(rank).place); }

  /// Returns when all ranks have arrived and agree about the call. Otherwise it throws on every rank, so that no rank
  /// uses the buffers of an absent one.
  void enter(int rank, const Offer& offer) {
    latch_->check_alive();
    member(rank).offer = offer;
    ++member(rank).entered;
    if (!arrive_and_wait(rank, true)) latch_->check_alive();
    if (!disagreement_.empty()) throw Error(disagreement_, offer.call.where);
  }
  /// Returns when all ranks are done with each other's buffers; call it after enter(). Even if the world ends, no rank
  /// may continue earlier, because others still use its buffers. Each rank arrives in bounded time.
  void leave(int rank) { (void)arrive_and_wait(rank, false); }

  /// A note holds up to note_bytes that a rank publishes with its next collective. The others read it after enter(),
  /// without a leave(). Two notes per rank alternate, because a reader may be one collective behind.
  static constexpr std::size_t note_bytes = 512;
  [[nodiscard]] std::byte* next_note(int rank) {
    return member(rank).notes[(member(rank).entered + 1) % 2].data();
  }
  /// Returns the note of `rank` in the collective that `reader`, the calling rank, has entered last.
  [[nodiscard]] const std::byte* note(int rank, int reader) const {
    return member(rank).notes[member(reader).entered % 2].data();
  }
  [[nodiscard]] std::atomic<bool>& in_use(int rank) { return member(rank).in_use; }

  static constexpr int capacity = 4;  ///< limit of unreceived messages between two ranks
  struct Message {
    Tensor<Cpu> tensor;
    CallSite where{};
  };
  /// The messages from one rank to another. One thread sends and one receives, so the ring needs no lock.
  struct Edge {
    std::array<Message, capacity> ring;
    std::atomic<std::uint64_t> sent = 0, received = 0;
    WaitWord word;
    std::atomic<bool> sending = false, receiving = false;
    [[nodiscard]] bool full() const { return sent - received >= capacity; }
    [[nodiscard]] bool none() const { return sent == received; }
  };
  [[nodiscard]] Edge& edge(int from, int to) {
    return waits_->edges[as_size(from) * members_.size() + as_size(to)];
  }
  /// Waits in a send or recv of this rank until ready(), which only the other rank of the edge can make true.
  void wait(Edge& edge, int rank, const CommCall& call, auto ready) {
    latch_->check_alive();
    for (;;) {
      const auto word = edge.word.read();
      const bool alone = latch_->has_finished(world_rank(call.other));
      if (ready()) return;
      if (alone) end_wait_for_finished(rank, call, world_rank(call.other));
      if (alone || WaitWord::ended(word)) latch_->check_alive();
      block(edge.word, word, rank, call);
    }
  }

 private:
  struct alignas(64) Member {
    int world_rank = 0;
    Offer offer;
    Place place;
    std::uint64_t entered = 0;  ///< number of collectives that this rank has entered
    std::atomic<bool> in_use = false;
    alignas(64) std::array<std::array<std::byte, note_bytes>, 2> notes;
  };
  /// All words that the group's ranks can block on.
  struct Waits {
    explicit Waits(std::size_t ranks) : edges(ranks * ranks) {}
    void wake(bool ended) {
      met.wake(ended);
      for (auto& edge : edges) edge.word.wake(ended);
    }
    WaitWord met{};
    std::vector<Edge> edges;
  };
  [[nodiscard]] Member& member(int rank) { return members_[as_size(rank)]; }
  [[nodiscard]] const Member& member(int rank) const { return members_[as_size(rank)]; }

  // Waits for a change of the word. Ends the world if, in 20 checks, all ranks wait and the process computes nothing.
  void block(WaitWord& word, std::uint32_t seen, int rank, const CommCall& call) {
    auto& mine = latch_->waits[as_size(world_rank(rank))];
    mine.operation = name_of(call.kind);
    mine.where = call.where;
    ++mine.begun;
    std::uint64_t before = 0;
    std::clock_t cpu = 0;
    for (int looks = 0; !word.wait(seen, latch_->look);) {
      const auto begun = latch_->all_wait();
      const auto earlier = std::exchange(cpu, std::clock());
      const bool same = std::exchange(before, begun) == begun && begun > 0;
      looks = same && cpu - earlier < CLOCKS_PER_SEC / 4 ? looks + 1 : 0;
      if (looks == 20) end_all();
    }
    ++mine.ended;
  }
  void end_all() {
    std::string named;  // one rank, and another that waits elsewhere, if there is one
    for (int rank = 0, count = 0; count < 2 && rank < std::ssize(latch_->waits); ++rank) {
      const auto& [begun, ended, operation, where] = latch_->waits[as_size(rank)];
      const auto place = concat(" in ", operation.load(), " at ", where.load());
      if (latch_->has_finished(rank) || named.ends_with(place)) continue;
      named += concat(count++ == 0 ? "rank " : ", rank ", rank, place);
    }
    latch_->abort(concat("all ranks wait for each other: ", named,
                         "; all ranks make the same calls (step, evaluate, save, ...), in order"));
  }
  // Waits for all ranks; the last one releases the others. With `enters`, returns false if the world has ended.
  bool arrive_and_wait(int rank, bool enters) {
    const auto before = waits_->met.read();
    if (++arrivals_ == size()) {
      arrivals_ = 0;
      if (enters) agree();
      if (enters) return waits_->met.change_unless_ended();
      waits_->met.change();
      return true;
    }
    for (;;) {
      const auto now = waits_->met.read();
      if (WaitWord::changed(before, now)) return true;
      if (enters && WaitWord::ended(now)) return false;
      if (enters) end_if_one_has_finished(rank);
      block(waits_->met, now, rank, member(rank).offer.call);
    }
  }
  // Ends the world if a missing rank has finished, because that rank will enter no further collective.
  void end_if_one_has_finished(int rank) {
    for (const auto& other : members_)
      if (latch_->has_finished(other.world_rank) && other.entered < member(rank).entered)
        end_wait_for_finished(rank, member(rank).offer.call, other.world_rank);
  }
  void end_wait_for_finished(int rank, const CommCall& call, int gone) {
    latch_->abort(concat("rank ", world_rank(rank), " waits in ", call, " for rank ", gone,
                         ", which has finished"));
  }

  void agree() {
    try {
      disagreement_.clear();
      const auto& first = member(0).offer.call;
      for (int rank = 1; rank < size(); ++rank) {
        const auto& other = member(rank).offer.call;
        if (first.agrees_with(other)) continue;
        disagreement_ = concat("ranks do not agree: rank ", world_rank(0), " calls ", first,
                               ", rank ", world_rank(rank), " calls ", other);
        return;
      }
      if (first.kind == CallKind::split) place_all();
    } catch (const std::exception& error) {  // out of memory: all ranks throw this error
      disagreement_ = error.what();
    }
  }
  void place_all() {
    std::vector<ColorKey> color_keys;
    for (const auto& member : members_) color_keys.push_back(member.offer.color_key);
    for (int rank = 0; rank < size(); ++rank) {
      const auto part = part_with(rank, color_keys);
      if (part.front() != rank) continue;  // the part's first rank makes the group for all
      std::vector<int> world_ranks;
      for (const int other : part) world_ranks.push_back(world_rank(other));
      const auto group = std::make_shared<ThreadGroup>(latch_, world_ranks);
      for (std::size_t at = 0; at < part.size(); ++at)
        member(part[at]).place = {group, static_cast<int>(at)};
    }
  }

  std::shared_ptr<Latch> latch_;
  std::vector<Member> members_;
  std::shared_ptr<Waits> waits_;
  std::atomic<int> arrivals_ = 0;
  std::string disagreement_;
  std::shared_ptr<void> on_change_;
};

}  // namespace dhp::detail
