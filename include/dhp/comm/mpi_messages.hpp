// MpiMessages: messages between the ranks of a communicator of MPI, told apart by tags of 64 bits, of which MPI has
// as few as 15. A header goes before each message, and says its tag and length, and which MPI tag the message itself
// has: one that nothing else under way between the two ranks has. The receiver matches headers with what is
// waited for, and only then lets MPI put the message where it belongs: nothing is copied on the way. Needs MPI.
#pragma once

#include <dhp/comm/mpi_duplicate.hpp>
#include <dhp/comm/mpi_requests.hpp>

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace dhp {

class MpiMessages {
 public:
  using Message = MpiMessage;
  using Shared = MpiRequests::Shared;

  /// MPI counts bytes by an int: a longer message goes in pieces.
  static constexpr std::size_t longest_piece_bytes = std::size_t{1} << 30;

  explicit MpiMessages(std::shared_ptr<MpiDuplicate> comm,
                       std::size_t piece_bytes = longest_piece_bytes)
      : comm_(std::move(comm)),
        piece_bytes_(piece_bytes),
        headers_(comm_->get()),
        tags_(static_cast<std::size_t>(comm_->size())),
        farewells_(static_cast<std::size_t>(comm_->size()), Farewell::none) {
    farewells_[static_cast<std::size_t>(comm_->rank())] = Farewell::intact;
    int* most = nullptr;
    int set = 0;
    check_mpi(MPI_Comm_get_attr(comm_->get(), MPI_TAG_UB, &most, &set), "MPI_Comm_get_attr");
    if (set != 0) highest_tag_ = *most;
  }
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;
  ~MpiMessages() {
    int finalised = 0;
    if (closed_ || MPI_Finalized(&finalised) != MPI_SUCCESS || finalised != 0) return;
    comm_->call([&] { headers_.stop(); });
    requests_.keep_for_ever();
  }

  /// Any thread may call these. None waits.
  void send(const Shared& message) {
    comm_->call([&] {
      check_open();
      if (ended_) return;
      auto& stream = streams_[key_of(*message)];
      if (stream.mpi_tag == MpiHeaders::mpi_tag) stream.mpi_tag = take_tag(message->peer);
      waiting_.emplace(key_of(*message), message);
      begin_waiting(stream, key_of(*message));
    });
  }
  void receive(const Shared& message) {
    comm_->call([&] {
      check_open();
      if (ended_) return;
      if (const auto header = take_first(announced_, key_of(*message))) match(message, *header);
      else expected_.emplace(key_of(*message), message);
    });
  }
  /// Makes MPI move what is under way. Whether the message is done; `moved`: whether anything has come or gone.
  [[nodiscard]] bool poll(const Message& message, bool& moved) {
    return comm_->call([&] {
      if (message.state != State::done) moved = progress();
      return message.state == State::done;
    });
  }
  /// Nobody waits for it any more: its memory may go when this has returned.
  void release(const Shared& message) {
    PollPause pause(eager_s);
    for (bool over = false;;) {
      bool moved = false;
      comm_->call([&] {
        if (message->state == State::waiting) withdraw(message);
        if (message->state != State::done) moved = progress();
        if (message->state != State::done && too_late()) give_up(message), over = true;
        over = over || message->state == State::done;
      });
      if (over) return;
      pause(moved);
    }
  }
  /// Nothing begins any more, and nothing is waited for. By any thread; it calls nothing of MPI.
  void end() noexcept {
    bool never = false;
    if (!ending_.compare_exchange_strong(never, true)) return;
    ended_at_ = Clock::now();
    ended_ = true;
  }
  [[nodiscard]] bool ended() const { return ended_; }

  /// Collective, but for ranks that have gone. Whether all is done that was under way between any two of the ranks;
  /// then the communicator can be freed.
  [[nodiscard]] bool close() {
    const auto start = Clock::now();
    PollPause pause(eager_s);
    for (bool over = false, clean = false;;) {
      bool moved = false;
      comm_->call([&] {
        say_farewell();
        moved = progress();
        const auto now = Clock::now();
        const bool late = ended_ ? now - ended_at_ > grace : now - start > 5 * grace;
        over = late || (requests_.empty() && !any_says(Farewell::none));
        if (!over) return;
        clean =
            requests_.empty() && !torn_ && !any_says(Farewell::none) && !any_says(Farewell::torn);
        headers_.stop();
        requests_.keep_for_ever();
        closed_ = true;
      });
      if (over) return clean;
      pause(moved);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  using State = Message::State;
  using Key = std::pair<int, std::uint64_t>;  // the other rank, the tag

  static constexpr double eager_s = 0.002;
  static constexpr int most_under_way = 16;  // messages of one stream that MPI has been given
  // When the world has ended, ranks throw away what others have announced, so that these have their memory back;
  // they stop well before the others give up.
  static constexpr auto discards = std::chrono::seconds(1), grace = std::chrono::seconds(2);

  enum class Farewell { none, intact, torn };
  /// What goes to one rank with one tag. It has an MPI tag as long as any of it is under way: messages of one
  /// MPI tag meet in the order in which they were sent.
  struct Stream {
    int under_way = 0;
    int mpi_tag = MpiHeaders::mpi_tag;  // none yet
  };
  struct Tags {
    std::vector<int> free{};
    int used = MpiHeaders::mpi_tag;
  };

  [[nodiscard]] static Key key_of(const Message& message) { return {message.peer, message.tag}; }
  /// Values of one key, in the order in which they came.
  template <class Value>
  using Queues = std::multimap<Key, Value>;
  template <class Value>
  [[nodiscard]] static std::optional<Value> take_first(Queues<Value>& queues, const Key& key) {
    const auto first = queues.lower_bound(key);
    if (first == queues.end() || first->first != key) return std::nullopt;
    std::optional<Value> taken(std::move(first->second));
    queues.erase(first);
    return taken;
  }
  void check_open() const {
    check(!closed_,
          "the MpiGuest of this communicator has been closed, or has left its scope; keep it as "
          "long as its communicators are used");
  }
  [[nodiscard]] int take_tag(int peer) {
    auto& tags = tags_[static_cast<std::size_t>(peer)];
    if (tags.free.empty()) {
      check(tags.used < highest_tag_, "more than ", highest_tag_,
            " calls with one rank are under way, and this MPI has no more tags");
      return ++tags.used;
    }
    const int tag = tags.free.back();
    tags.free.pop_back();
    return tag;
  }

  void begin_waiting(Stream& stream, const Key& key) {
    while (stream.under_way < most_under_way) {
      const auto next = take_first(waiting_, key);
      if (!next) return;
      const auto& message = *next;
      ++stream.under_way;
      send_header(message, {message->tag, message->bytes, stream.mpi_tag, 1});
      // Synchronous: when it is done the receiver has matched it, and another stream may have its MPI tag.
      in_pieces(message, [&](std::byte* at, int bytes, MPI_Request* request) {
        check_mpi(
            MPI_Issend(at, bytes, MPI_BYTE, message->peer, stream.mpi_tag, comm_->get(), request),
            "MPI_Issend");
      });
    }
  }
  void send_header(const Shared& message, const MpiHeader& header) {
    message->state = State::moving;
    message->header = header;
    check_mpi(MPI_Isend(&message->header, sizeof header, MPI_BYTE, message->peer,
                        MpiHeaders::mpi_tag, comm_->get(), requests_.add(message)),
              "MPI_Isend");
  }
  template <class Begin>
  void in_pieces(const Shared& message, Begin begin) {
    for (std::size_t first = 0; first < message->bytes; first += piece_bytes_) {
      const auto bytes = std::min(piece_bytes_, message->bytes - first);
      begin(message->data + first, static_cast<int>(bytes), requests_.add(message));
    }
  }
  void match(const Shared& message, const MpiHeader& header) {
    if (header.bytes != message->bytes) {  // ranks that do not agree have other tags
      message->wrong =
          concat("it has sent ", header.bytes, " bytes where ", message->bytes, " were to come");
      message->state = State::done;
      return discard(message->peer, header);
    }
    message->state = State::moving;
    in_pieces(message, [&](std::byte* at, int bytes, MPI_Request* request) {
      check_mpi(
          MPI_Irecv(at, bytes, MPI_BYTE, message->peer, header.mpi_tag, comm_->get(), request),
          "MPI_Irecv");
    });
    if (message->open == 0) message->state = State::done;
  }
  void discard(int peer, const MpiHeader& header) {
    auto message = std::make_shared<Message>(Message{
        .data = nullptr, .bytes = header.bytes, .peer = peer, .tag = header.tag, .sends = false});
    message->own.reset(new std::byte[header.bytes]);
    message->data = message->own.get();
    match(message, header);
  }

  [[nodiscard]] bool progress() {
    if (ended_ && discarding()) say_farewell();
    bool moved = false;
    MpiHeader header;
    for (int from = 0; !closed_ && headers_.next(header, from); moved = true) hear(from, header);
    requests_.finish_some(finished_);  // a member: polling allocates nothing
    for (const auto& message : finished_) {
      message->state = State::done;
      if (message->sends) sent(*message);
      moved = true;
    }
    finished_.clear();
    return moved;
  }
  void hear(int from, const MpiHeader& header) {
    if (header.mpi_tag == MpiHeaders::mpi_tag) {
      const auto said = header.intact != 0 ? Farewell::intact : Farewell::torn;
      farewells_[static_cast<std::size_t>(from)] = said;
      if (said_farewell_) discard_announced();
      return;
    }
    if (ended_ && !discarding()) return;  // its sender may have given it up by now
    const Key key{from, header.tag};
    if (const auto message = take_first(expected_, key)) match(*message, header);
    else announced_.emplace(key, header);
  }
  void sent(const Message& message) {
    const auto found = streams_.find(key_of(message));
    auto& stream = found->second;
    --stream.under_way;
    begin_waiting(stream, key_of(message));
    if (stream.under_way > 0) return;
    tags_[static_cast<std::size_t>(message.peer)].free.push_back(stream.mpi_tag);
    streams_.erase(found);
  }

  /// After it this rank begins nothing, and throws away what others have announced and will not need.
  void say_farewell() {
    if (std::exchange(said_farewell_, true)) return;
    waiting_.clear();
    for (int peer = 0; peer < comm_->size(); ++peer) {
      if (peer == comm_->rank()) continue;
      auto message = std::make_shared<Message>(
          Message{.data = nullptr, .bytes = 0, .peer = peer, .tag = 0, .sends = false});
      send_header(message, {0, 0, MpiHeaders::mpi_tag, torn_ ? 0 : 1});
    }
    discard_announced();
  }
  [[nodiscard]] bool any_says(Farewell said) const {
    return std::find(farewells_.begin(), farewells_.end(), said) != farewells_.end();
  }
  [[nodiscard]] bool discarding() const { return Clock::now() - ended_at_ < discards; }
  void discard_announced() {
    if (ended_ && !discarding()) return;
    for (auto at = announced_.begin(); at != announced_.end();) {
      const int peer = at->first.first;
      if (farewells_[static_cast<std::size_t>(peer)] != Farewell::intact) {
        ++at;
        continue;
      }
      discard(peer, at->second);
      at = announced_.erase(at);
    }
  }

  void withdraw(const Shared& message) {
    const auto key = key_of(*message);
    auto& queues = message->sends ? waiting_ : expected_;
    const auto [first, last] = queues.equal_range(key);
    const auto found =
        std::find_if(first, last, [&](const auto& at) { return at.second == message; });
    if (found != last) queues.erase(found);
    message->state = State::done;
  }
  [[nodiscard]] bool too_late() {
    const auto now = Clock::now();
    if (ended_) return now - ended_at_ > grace;
    // A rank that fails by itself: others do not know it yet, and what they have not asked for will not go.
    if (first_release_ == Clock::time_point()) first_release_ = now;
    return now - first_release_ > grace / 2;
  }
  void give_up(const Shared& message) {
    torn_ = true;
    if (message->sends) return;
    requests_.cancel(message);
    static_cast<void>(progress());
  }

  std::shared_ptr<MpiDuplicate> comm_;
  std::size_t piece_bytes_;
  int highest_tag_ = 32767;
  MpiHeaders headers_;
  MpiRequests requests_{};
  std::map<Key, Stream> streams_{};
  Queues<Shared> waiting_{};       // sends that MPI has not been given yet
  Queues<Shared> expected_{};      // receives of what has not been announced
  Queues<MpiHeader> announced_{};  // the other way round
  std::vector<Shared> finished_{};
  std::vector<Tags> tags_;           // by receiver
  std::vector<Farewell> farewells_;  // by sender
  bool said_farewell_ = false;
  bool torn_ = false;  // memory of an announced message is gone
  bool closed_ = false;
  Clock::time_point first_release_{};
  std::atomic<bool> ending_ = false, ended_ = false;
  Clock::time_point ended_at_{};  // set before ended_
};

}  // namespace dhp
