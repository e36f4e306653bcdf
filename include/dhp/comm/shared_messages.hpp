// SharedMessages: messages between the ranks of one machine, through memory that they share. Each goes in pieces: the
// sender copies a piece into its own box and writes a note about it into the receiver's lane; the receiver copies it
// out and says that it has read it. Nothing happens but in calls of either side, and whoever waits does all that
// there is to do, for its other threads too; where a rank may wait for other things meanwhile that wait for it, a thread
// of its own does it. Notes that nobody expects yet wait outside the lanes, so that no
// message holds up another one.
#pragma once

#include <dhp/comm/block_heap.hpp>
#include <dhp/comm/peer_transport.hpp>
#include <dhp/comm/shared_box.hpp>
#include <dhp/comm/stand_in.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace dhp {

class SharedMessages {
 public:
  struct Message {
    std::byte* data = nullptr;  ///< only read where it is sent
    std::size_t bytes = 0;
    int peer = 0;
    std::uint64_t tag = 0;
    std::size_t moved = 0;   ///< bytes that are copied
    bool whole = false;      ///< all of them are, also where there are none
    std::size_t unread = 0;  ///< pieces that the receiver has not read yet
    std::string wrong{};     ///< why it will never be whole
    [[nodiscard]] bool done() const { return whole && unread == 0; }
  };
  using Shared = std::shared_ptr<Message>;

  struct Options {
    std::size_t piece_bytes = (std::size_t{1} << 18) - sizeof(SharedBlock);
    std::size_t window_bytes = std::size_t{1} << 20;  ///< of messages of one tag, unread at a time
    bool helped = false;  ///< ranks may wait elsewhere while messages are under way
  };

  /// others: the boxes of those ranks that have opened `own`.
  SharedMessages(int rank, SharedBox own, std::map<int, SharedBox> others, Options options)
      : rank_(rank),
        options_(options),
        own_(std::move(own)),
        others_(std::move(others)),
        heap_(own_.heap_bytes()) {
    if (options_.helped) helping_ = std::thread([this] { help(); });
  }
  SharedMessages(const SharedMessages&) = delete;
  SharedMessages& operator=(const SharedMessages&) = delete;
  ~SharedMessages() {
    if (!helping_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      helper_.stop();
    }
    changed_.notify_all();
    own_.bell().ring();
    helping_.join();
  }

  [[nodiscard]] bool reaches(int rank) const { return others_.contains(rank); }

  /// Any thread may call these. Neither waits.
  void send(const Shared& message) { send(message, options_.window_bytes); }
  /// All of it is copied when this has returned.
  void send_ahead(const Shared& message) { send(message, unlimited); }
  void receive(const Shared& message) {
    const std::lock_guard lock(mutex_);
    const auto at = key_of(*message);
    channels_[at].wanted.push_back(message);
    deliver(at);
    call_helper();
  }
  /// Returns true when the message has been received, false when all has ended before. Throws PeerLost. What a rank sends
  /// is not done before: it could finish while others do something else, and they would only see it gone.
  [[nodiscard]] bool wait(const Message& message) {
    std::unique_lock lock(mutex_);
    const Waiting here(*this);
    while (!message.done()) {
      if (ended_) return false;
      if (!message.wrong.empty()) throw PeerLost(message.peer, message.wrong);
      if (!helper_.failed().empty()) throw PeerLost(message.peer, helper_.failed());
      if (move_or_sleep(lock) || ended_) continue;
      lock.unlock();
      const bool gone = others_.at(message.peer).owner_gone();
      lock.lock();
      if (gone && !progress() && !message.done())
        throw PeerLost(message.peer, "its process has ended");
    }
    return true;
  }
  /// Nobody waits for it any more: its memory may go when this has returned.
  void withdraw(const Shared& message) {
    const std::lock_guard lock(mutex_);
    if (const auto stream = streams_.find(key_of(*message)); stream != streams_.end())
      std::erase(stream->second.waiting, message);
    if (const auto channel = channels_.find(key_of(*message)); channel != channels_.end())
      std::erase(channel->second.wanted, message);
  }
  /// Ends every wait, now and later. By any thread.
  void end() noexcept {
    ended_ = true;
    own_.bell().ring();
  }

 private:
  using Key = std::pair<int, std::uint64_t>;  // peer and tag
  static constexpr std::size_t unlimited = ~std::size_t{0};

  struct Unread {
    std::size_t offset, bytes;
    Shared message;
  };
  struct Stream {
    std::deque<Shared> waiting;  // to be copied into the box
    std::deque<Unread> unread;
    std::size_t unread_bytes = 0;
  };
  struct Channel {
    std::deque<Shared> wanted;
    std::deque<SharedNote> arrived;
  };

  /// A thread that waits, for the helper to leave it the work.
  class Waiting {
   public:
    explicit Waiting(SharedMessages& all) : all_(&all) { ++all.waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      --all_->waiting_;
      all_->call_helper();
    }

   private:
    SharedMessages* all_;
  };

  [[nodiscard]] static Key key_of(const Message& message) { return {message.peer, message.tag}; }

  void send(const Shared& message, std::size_t window_bytes) {
    const std::lock_guard lock(mutex_);
    const auto key = key_of(*message);
    auto& stream = streams_[key];
    stream.waiting.push_back(message);
    static_cast<void>(reclaim(stream));
    static_cast<void>(copy_in(key, stream, window_bytes));
    call_helper();
  }
  // With the lock, as all that follow.
  [[nodiscard]] bool needs_help() const {
    return waiting_ == 0 && !ended_ && !(streams_.empty() && channels_.empty());
  }
  void call_helper() {
    if (helper_.idle() && needs_help()) changed_.notify_all();
  }
  void help() {
    std::unique_lock lock(mutex_);
    helper_.work(
        lock, changed_, [this] { return needs_help(); },
        [this](auto& held) { static_cast<void>(move_or_sleep(held)); });
  }
  // Does all that can be done, or sleeps until that may be something. False: nothing has come for a while.
  [[nodiscard]] bool move_or_sleep(std::unique_lock<std::mutex>& lock) {
    constexpr long look_ms = 100;  // a rank that has died rings no bell
    const Doorbell::Listening listening(own_.bell());
    const auto rings = listening.rings();
    if (progress()) {
      if (!listening.alone()) own_.bell().ring();  // it may be what another thread waits for
      return true;
    }
    if (ended_) return true;
    lock.unlock();
    const bool rung = listening.sleep(rings, look_ms);
    lock.lock();
    return rung;
  }
  // Whether anything could be done.
  [[nodiscard]] bool progress() {
    bool moved = false;
    for (auto& [rank, box] : others_) {
      SharedNote note;
      bool was_full = false;
      while (box.lane(rank_).take(note, was_full)) {
        const Key key{rank, note.tag};
        channels_[key].arrived.push_back(note);
        moved = true;
      }
      if (was_full) box.bell().ring();
      moved = flush(rank) || moved;
    }
    for (auto next = channels_.begin(); next != channels_.end();) {
      const auto key = (next++)->first;  // which deliver() may erase
      moved = deliver(key) || moved;
    }
    for (auto next = streams_.begin(); next != streams_.end();) {
      const auto here = next++;
      auto& stream = here->second;
      moved = reclaim(stream) || moved;
      moved = copy_in(here->first, stream, options_.window_bytes) || moved;
      if (stream.waiting.empty() && stream.unread.empty()) streams_.erase(here);
    }
    return moved;
  }
  [[nodiscard]] bool copy_in(const Key& key, Stream& stream, std::size_t window_bytes) {
    bool moved = false;
    while (!stream.waiting.empty() && stream.unread_bytes < window_bytes) {
      const auto message = stream.waiting.front();
      const auto piece = std::min(options_.piece_bytes, message->bytes - message->moved);
      const auto offset = heap_.take(sizeof(SharedBlock) + piece);
      auto* const block = own_.make_block(offset);
      if (piece > 0) std::memcpy(block->bytes(), message->data + message->moved, piece);
      message->moved += piece;
      message->whole = message->moved == message->bytes;
      ++message->unread;
      stream.unread.push_back({offset, piece, message});
      stream.unread_bytes += piece;
      outbox_[key.first].push_back(
          {.tag = key.second, .offset = offset, .bytes = piece, .last = message->whole ? 1u : 0u});
      if (message->whole) stream.waiting.pop_front();
      static_cast<void>(flush(key.first));
      moved = true;
    }
    return moved;
  }
  [[nodiscard]] bool flush(int to) {
    auto& notes = outbox_[to];
    bool moved = false;
    while (!notes.empty() && own_.lane(to).put(notes.front())) {
      notes.pop_front();
      moved = true;
    }
    if (moved) others_.at(to).bell().ring();
    return moved;
  }
  [[nodiscard]] bool reclaim(Stream& stream) {
    bool moved = false;
    while (!stream.unread.empty()) {
      const auto& first = stream.unread.front();
      if (own_.block(first.offset).read.load(std::memory_order_acquire) == 0) break;
      heap_.give_back(first.offset, sizeof(SharedBlock) + first.bytes);
      stream.unread_bytes -= first.bytes;
      --first.message->unread;
      stream.unread.pop_front();
      moved = true;
    }
    return moved;
  }
  bool deliver(const Key& key) {
    const auto found = channels_.find(key);
    auto& [wanted, arrived] = found->second;
    auto& box = others_.at(key.first);
    bool moved = false;
    while (!wanted.empty() && !arrived.empty()) {
      auto& message = *wanted.front();
      const auto note = arrived.front();
      arrived.pop_front();
      moved = true;
      const bool ends = note.last == 1;
      if (!box.holds(note) || message.moved + note.bytes > message.bytes ||
          ends != (message.moved + note.bytes == message.bytes)) {
        message.wrong = concat("it sends other than the ", message.bytes, " bytes expected");
        wanted.pop_front();
        continue;
      }
      auto& block = box.block(note.offset);
      if (note.bytes > 0) std::memcpy(message.data + message.moved, block.bytes(), note.bytes);
      block.read.store(1, std::memory_order_release);
      box.bell().ring();
      message.moved += note.bytes;
      message.whole = ends;
      if (ends) wanted.pop_front();
    }
    if (wanted.empty() && arrived.empty()) channels_.erase(found);
    return moved;
  }

  int rank_;
  Options options_;
  std::mutex mutex_;
  SharedBox own_;
  std::map<int, SharedBox> others_;
  BlockHeap heap_;
  std::map<Key, Stream> streams_;
  std::map<Key, Channel> channels_;
  std::map<int, std::deque<SharedNote>> outbox_;  // that found their lane full
  std::atomic<bool> ended_ = false;
  std::condition_variable changed_;  // for the helper
  int waiting_ = 0;                  // threads
  StandIn helper_;
  std::thread helping_;
};

}  // namespace dhp
