// SocketMessages: messages between the ranks of several machines, over a connection of TCP to each. A short one goes at
// once, and waits with its receiver where nobody expects it yet; a long one goes when its receiver has said that it is
// ready to take it, and straight to where it belongs. So no message holds up another one, and a rank that is ahead
// fills nobody's memory. Bytes move in calls of either side: whoever waits does all that there is to do, for its
// other threads too. A thread of its own does it where nobody waits while long messages that were sent ahead are left, what
// has been said does not go at once, or, where a rank may wait for other things meanwhile that wait for it, any message
// is under way.
#pragma once

#include <dhp/comm/peer_transport.hpp>
#include <dhp/comm/socket_link.hpp>
#include <dhp/comm/stand_in.hpp>
#include <dhp/core/system_error.hpp>

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

class SocketMessages {
 public:
  using Message = SocketMessage;
  using Shared = std::shared_ptr<Message>;

  struct Options {
    std::size_t short_bytes = std::size_t{1}
                              << 14;  ///< the longest short message; equal on all ranks
    bool helped = false;              ///< ranks may wait elsewhere while messages are under way
  };

  /// links: to each other rank.
  SocketMessages(std::map<int, Socket> links, Options options)
      : options_(options), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    check_system(static_cast<bool>(wake_), "cannot make what wakes a rank that waits");
    for (auto& [rank, socket] : links) links_.emplace(rank, std::move(socket));
    helping_ = std::thread([this] { help(); });
  }
  SocketMessages(const SocketMessages&) = delete;
  SocketMessages& operator=(const SocketMessages&) = delete;
  ~SocketMessages() {
    {
      const std::lock_guard lock(mutex_);
      helper_.stop();
      disturb();
    }
    helping_.join();
    write_the_rest();
  }

  /// Any thread may call these. Neither waits.
  void send(const Shared& message) {
    const std::lock_guard lock(mutex_);
    begin(message);
    if (options_.helped) leave(*message);
  }
  void send_ahead(const Shared& message) {
    const std::lock_guard lock(mutex_);
    begin(message);
    if (options_.helped || !is_short(*message)) leave(*message);
  }
  void receive(const Shared& message) {
    const std::lock_guard lock(mutex_);
    const auto key = key_of(*message);
    channels_[key].wanted.push_back(message);
    if (!is_short(*message)) answer(key);
    deliver(key);
    if (options_.helped) leave(*message);
  }
  /// Returns true when the message has been written or received, false when all has ended before. Throws PeerLost.
  [[nodiscard]] bool wait(const Message& message) {
    std::unique_lock lock(mutex_);
    const Waiting here(*this);
    auto& link = links_.at(message.peer);
    if (!message.done()) look(message.peer, link);
    while (!message.done()) {
      if (ended_) return false;
      if (!message.wrong.empty()) throw PeerLost(message.peer, message.wrong);
      if (!helper_.failed().empty()) throw PeerLost(message.peer, helper_.failed());
      if (!link.lost().empty()) throw PeerLost(message.peer, link.lost());
      if (!leading_) {
        lead(lock);
        continue;
      }
      if (helper_.working()) ring();  // this one takes over
      changed_.wait(lock);
    }
    return true;
  }
  /// Nobody waits for it any more: its memory may go when this has returned.
  void withdraw(const Shared& message) {
    const std::lock_guard lock(mutex_);
    if (message->done()) return;
    const auto key = key_of(*message);
    auto& link = links_.at(message->peer);
    take_from_unanswered(message, link);
    if (const auto found = channels_.find(key); found != channels_.end())
      std::erase(found->second.wanted, message);
    link.forget(message);
    if (!link.lost().empty()) disturb();  // the message may have been broken off
    if (const auto found = incoming_.find(message->peer);
        found != incoming_.end() && found->second.message == message) {
      link.discard_rest();
      found->second.message.reset();
      found->second.discarded = true;
    }
    take_back(*message);
  }
  /// Ends every wait, now and later. By any thread.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    disturb();
  }

 private:
  using Key = std::pair<int, std::uint64_t>;  // peer and tag
  using Arrived = std::vector<std::byte>;
  using Place = std::deque<Shared>::iterator;
  struct Channel {
    std::deque<Shared> wanted;
    std::deque<Arrived> arrived;
  };
  /// What is being read from a rank: into a message, or else into what has arrived before anybody expects it.
  struct Incoming {
    Shared message{};
    Arrived early{};
    bool discarded = false;
  };
  /// A thread that waits, for the helper to leave it the work; who leaves lets the next one lead.
  class Waiting {
   public:
    explicit Waiting(SocketMessages& all) : all_(&all) { ++all.waiting_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
      --all_->waiting_;
      if (all_->waiting_ > 0 || all_->needs_help()) all_->changed_.notify_all();
    }

   private:
    SocketMessages* all_;
  };

  [[nodiscard]] static Key key_of(const Message& message) { return {message.peer, message.tag}; }
  [[nodiscard]] bool is_short(const Message& message) const {
    return message.bytes <= options_.short_bytes;
  }

  // All that follow: with the lock.

  /// To the helper, where nobody waits.
  void leave(Message& message) {
    if (message.moved) return;
    message.left = true;
    ++left_;
    if (needs_help()) changed_.notify_all();
  }
  void take_back(Message& message) {
    if (std::exchange(message.left, false)) --left_;
  }
  void moved(Message& message) {
    message.moved = true;
    take_back(message);
  }
  [[nodiscard]] bool has_to_write() const {
    return std::any_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link.second.has_to_write(); });
  }
  [[nodiscard]] bool is_left() const {
    return waiting_ == 0 && !ended_ && (left_ > 0 || has_to_write());
  }
  [[nodiscard]] bool needs_help() const { return helper_.idle() && is_left(); }
  /// Others may wait for it, and what a connection that is closed has not written is lost.
  void write_the_rest() {
    const Deadline patience(2);
    while (!ended_ && has_to_write() && !patience.passed()) {
      for (auto& [rank, link] : links_) {
        write(link);
        if (!link.has_to_write()) continue;
        pollfd polled{link.fd(), POLLOUT, 0};
        (void)::poll(&polled, 1, 10);
      }
    }
  }

  void begin(const Shared& message) {
    const auto key = key_of(*message);
    auto& link = links_.at(message->peer);
    message->taken = false;
    auto& of_tag = unanswered_[key];
    // A short one does not overtake a long one of its tag.
    const bool free = none_long(of_tag.begin(), of_tag.end());
    of_tag.push_back(message);
    if (is_short(*message)) {
      if (free) put(link, message);
    } else if (const auto ready = answers_.find(key); ready != answers_.end()) {
      if (--ready->second == 0) answers_.erase(ready);
      take_answer(key);
    } else {
      look(message->peer, link);
    }
    write(link, message.get());
  }
  void put(SocketLink& link, const Shared& message) {
    link.put({.tag = message->tag, .bytes = message->bytes, .kind = SocketHead::message}, message);
  }
  /// The other side takes the first message of this tag that it has not answered yet.
  void take_answer(const Key& key) {
    const auto found = unanswered_.find(key);
    if (found == unanswered_.end() || found->second.empty()) {
      ++answers_[key];
      return;
    }
    auto& of_tag = found->second;
    const auto message = of_tag.front();
    of_tag.pop_front();
    message->taken = true;
    if (!is_short(*message)) {
      auto& link = links_.at(key.first);
      put(link, message);
      put_short_ones(link, of_tag.begin(), of_tag.end());
    }
    if (of_tag.empty()) unanswered_.erase(found);
  }
  [[nodiscard]] bool none_long(Place first, Place last) const {
    return std::all_of(first, last, [this](const Shared& one) { return is_short(*one); });
  }
  /// Those up to the next long one, for which they have not to wait any more.
  void put_short_ones(SocketLink& link, Place first, Place last) {
    for (; first != last && is_short(**first); ++first) put(link, *first);
  }
  /// It has not been sent: those that have waited behind it go now.
  void take_from_unanswered(const Shared& message, SocketLink& link) {
    const auto found = unanswered_.find(key_of(*message));
    if (found == unanswered_.end()) return;
    auto& of_tag = found->second;
    const auto at = std::find(of_tag.begin(), of_tag.end(), message);
    if (at == of_tag.end()) return;
    const auto next = of_tag.erase(at);
    if (!is_short(*message) && none_long(of_tag.begin(), next)) {
      put_short_ones(link, next, of_tag.end());
      write(link);
    }
    if (of_tag.empty()) unanswered_.erase(found);
  }
  void answer(const Key& key) {
    auto& link = links_.at(key.first);
    link.put({.tag = key.second, .kind = SocketHead::taken});
    write(link);
  }
  /// mine: what the caller has put, and will not wait for in its sleep.
  void write(SocketLink& link, const Message* mine = nullptr) {
    bool others = false;
    link.write([&](Message& message) {
      moved(message);
      others = others || &message != mine;
    });
    // Who leads does not know that its message has gone, or that there is something to write.
    if (leading_ && (others || link.has_to_write())) ring();
    if (link.has_to_write() && needs_help()) changed_.notify_all();
  }
  /// It may be there already. Where a thread leads that is its work, and what it may sleep for.
  void look(int rank, SocketLink& link) {
    if (!leading_) read(rank, link);
  }
  void read(int rank, SocketLink& link) {
    link.read([&](const SocketHead& head) { return begin_reading(rank, link, head); },
              [&](const SocketHead& head) { end_reading(rank, head); });
  }
  [[nodiscard]] std::byte* begin_reading(int rank, SocketLink& link, const SocketHead& head) {
    auto& now = incoming_[rank] = Incoming();
    if (head.kind == SocketHead::taken && head.bytes == 0) return nullptr;
    if (head.kind != SocketHead::message) {
      link.lose("what it sends makes no sense");
      return nullptr;
    }
    const auto found = channels_.find({rank, head.tag});
    if (found != channels_.end() && !found->second.wanted.empty()) {
      now.message = found->second.wanted.front();
      found->second.wanted.pop_front();
      if (fits(*now.message, head.bytes)) return now.message->data;
      now.message.reset();
      now.discarded = true;
      return nullptr;
    }
    if (head.bytes > options_.short_bytes) {  // who wanted it has gone
      now.discarded = true;
      return nullptr;
    }
    now.early.resize(head.bytes);
    return now.early.data();
  }
  void end_reading(int rank, const SocketHead& head) {
    const Key key{rank, head.tag};
    auto now = std::exchange(incoming_[rank], {});
    if (head.kind == SocketHead::taken) {
      take_answer(key);
      write(links_.at(rank));
    } else if (now.message) {
      moved(*now.message);
      if (is_short(*now.message)) answer(key);
    } else if (!now.discarded) {
      channels_[key].arrived.push_back(std::move(now.early));
      deliver(key);
    }
    if (const auto found = channels_.find(key); found != channels_.end()) drop_empty(found);
  }
  void deliver(const Key& key) {
    const auto found = channels_.find(key);
    auto& [wanted, arrived] = found->second;
    while (!wanted.empty() && !arrived.empty()) {
      const auto message = std::move(wanted.front());
      const auto early = std::move(arrived.front());
      wanted.pop_front();
      arrived.pop_front();
      if (!fits(*message, early.size())) continue;
      if (message->bytes > 0) std::memcpy(message->data, early.data(), message->bytes);
      moved(*message);
      answer(key);
    }
    drop_empty(found);
  }
  void drop_empty(std::map<Key, Channel>::iterator channel) {
    if (channel->second.wanted.empty() && channel->second.arrived.empty()) channels_.erase(channel);
  }
  [[nodiscard]] static bool fits(Message& message, std::size_t bytes) {
    if (bytes == message.bytes) return true;
    message.wrong = concat("it sends other than the ", message.bytes, " bytes expected");
    return false;
  }

  /// Sleeps until there is something to do on any connection, and does it.
  void lead(std::unique_lock<std::mutex>& lock) {
    polled_.assign({{wake_.fd(), POLLIN, 0}});
    for (const auto& [rank, link] : links_) {
      const short events = link.has_to_write() ? POLLIN | POLLOUT : POLLIN;
      polled_.push_back({link.lost().empty() ? link.fd() : -1, events, 0});
    }
    leading_ = true;
    lock.unlock();
    (void)::poll(polled_.data(), polled_.size(), -1);
    lock.lock();
    leading_ = false;
    if (polled_[0].revents != 0) {
      eventfd_t rings = 0;
      (void)::eventfd_read(wake_.fd(), &rings);
    }
    std::size_t at = 1;
    for (auto& [rank, link] : links_) {
      const auto events = polled_[at++].revents;
      if ((events & POLLOUT) != 0) write(link);
      if ((events & ~POLLOUT) != 0) read(rank, link);
    }
    if (waiting_ > 1 || (waiting_ > 0 && helper_.working())) changed_.notify_all();
  }
  /// Leads where nobody else does and there is need.
  void help() {
    std::unique_lock lock(mutex_);
    helper_.work(
        lock, changed_, [this] { return is_left(); }, [this](auto& held) { lead(held); });
  }
  void ring() { (void)::eventfd_write(wake_.fd(), 1); }
  void disturb() {
    changed_.notify_all();
    ring();
  }

  Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, SocketLink> links_;
  std::map<int, Incoming> incoming_;  // by rank
  std::map<Key, Channel> channels_;
  std::map<Key, std::deque<Shared>> unanswered_;
  std::map<Key, int> answers_;  // to messages that are not sent yet
  std::vector<pollfd> polled_;  // the leader's
  Socket wake_;
  int waiting_ = 0;       // threads
  int left_ = 0;          // messages that are left to the helper, and have not moved
  bool leading_ = false;  // a thread polls
  bool ended_ = false;
  StandIn helper_;
  std::thread helping_;
};

}  // namespace dhp
