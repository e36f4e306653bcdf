// SocketLink: one connection of TCP that carries messages both ways. Each begins with a head that says what it is; its
// bytes are written from where they are and read to where they belong, nothing is copied in between but by the
// system. Nothing here waits, or is meant for two threads at a time.
#pragma once

#include <dhp/comm/socket.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

/// As it goes over the connection, in the byte order of the machines, which have to have the same.
struct SocketHead {
  enum Kind : std::uint32_t {
    message = 0x6d706864,  // not what zeros or text would be
    taken,                 // a message of this tag finds somebody who takes it; has no bytes
  };
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  ///< that follow
  Kind kind = message;
  std::uint32_t unused = 0;
};
static_assert(std::is_trivially_copyable_v<SocketHead> && sizeof(SocketHead) == 24);

struct SocketMessage {
  std::byte* data = nullptr;  ///< only read where it is sent
  std::size_t bytes = 0;
  int peer = 0;
  std::uint64_t tag = 0;
  bool moved = false;   ///< all of it is written, or read
  bool taken = true;    ///< the other side has said so of what is sent
  bool left = false;    ///< to move where nobody waits for it
  std::string wrong{};  ///< why it will never be done
  [[nodiscard]] bool done() const { return moved && taken; }
};

class SocketLink {
 public:
  using Message = std::shared_ptr<SocketMessage>;

  explicit SocketLink(Socket socket) : socket_(std::move(socket)), inbox_(inbox_bytes) {
    socket_.prepare();
  }

  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] bool has_to_write() const { return !out_.empty() && lost_.empty(); }
  /// Why nothing comes any more; empty: it is up.
  [[nodiscard]] const std::string& lost() const { return lost_; }
  void lose(const std::string& why) {
    if (lost_.empty()) lost_ = why;
    out_.clear();
  }

  /// To be written by write(): its bytes must stay until it has moved, or forget(message). Null: of none.
  void put(const SocketHead& head, Message message = nullptr) {
    if (lost_.empty() && !closed_) out_.push_back({head, std::move(message)});
  }
  /// As much as goes without waiting. written(message) is called of what has gone in whole.
  template <class Written>
  void write(Written written) {
    while (has_to_write()) {
      std::array<iovec, 16> parts;
      const auto count = gather(parts);
      msghdr all{};
      all.msg_iov = parts.data();
      all.msg_iovlen = count;
      const auto sent = ::sendmsg(socket_.fd(), &all, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        closed_ = true;  // what the other side said before is still to be read, up to its end
        return out_.clear();
      }
      if (sent < 0) return lose(std::strerror(errno));
      auto left = static_cast<std::size_t>(sent);
      while (left > 0) {
        auto& first = out_.front();
        const auto step = std::min(left, first.size() - first.gone);
        first.gone += step;
        left -= step;
        if (first.gone < first.size()) break;
        const auto message = std::move(first.message);
        out_.pop_front();
        if (message) written(*message);
      }
    }
  }
  /// What has come. begin(head) says where its bytes go, null: nowhere; end(head) is called when all of them are there.
  template <class Begin, class End>
  void read(Begin begin, End end) {
    constexpr std::size_t most = std::size_t{1} << 22;  // others may have something to say, too
    for (std::size_t all = 0; lost_.empty() && all < most;) {
      const auto wanted = within_ && to_ != nullptr ? left_ : 0;
      std::array<iovec, 2> parts{{{to_, wanted}, {inbox_.data() + in_, inbox_.size() - in_}}};
      msghdr into{};
      into.msg_iov = wanted > 0 ? parts.data() : parts.data() + 1;
      into.msg_iovlen = wanted > 0 ? 2 : 1;
      const auto got = ::recvmsg(socket_.fd(), &into, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return lose(got == 0 ? "it has closed the connection" : std::strerror(errno));
      const auto bytes = static_cast<std::size_t>(got);
      const auto direct = std::min(bytes, wanted);
      all += bytes;
      if (wanted > 0) {
        to_ += direct;
        left_ -= direct;
      }
      in_ += bytes - direct;
      sort(begin, end);
      if (bytes < wanted + (parts[1].iov_len)) return;  // that was all
    }
  }
  /// Its bytes are not written any more.
  void forget(const Message& message) {
    const auto same = [&](const Outgoing& one) { return one.message == message; };
    if (!out_.empty() && same(out_.front()) && out_.front().gone > 0)
      return lose("a message over it was broken off");
    std::erase_if(out_, same);
  }
  /// The rest of what is being read goes nowhere.
  void discard_rest() { to_ = nullptr; }

 private:
  struct Outgoing {
    SocketHead head;
    Message message;
    std::size_t gone = 0;  // bytes of both
    [[nodiscard]] std::size_t size() const { return sizeof head + head.bytes; }
  };
  static constexpr std::size_t inbox_bytes = std::size_t{1} << 16;

  [[nodiscard]] std::size_t gather(std::array<iovec, 16>& parts) {
    std::size_t count = 0;
    const auto add = [&](std::byte* from, std::size_t bytes) {
      if (bytes > 0) parts[count++] = {from, bytes};
    };
    for (auto& one : out_) {
      if (count + 2 > parts.size()) break;
      const auto of_head = std::min(one.gone, sizeof one.head);
      const auto of_data = one.gone - of_head;
      add(reinterpret_cast<std::byte*>(&one.head) + of_head, sizeof one.head - of_head);
      if (one.message) add(one.message->data + of_data, one.message->bytes - of_data);
    }
    return count;
  }
  /// What is in the inbox, to where it belongs.
  template <class Begin, class End>
  void sort(Begin begin, End end) {
    std::size_t at = 0;
    while (lost_.empty()) {
      if (!within_) {
        if (in_ - at < sizeof head_) break;
        std::memcpy(&head_, inbox_.data() + at, sizeof head_);
        at += sizeof head_;
        left_ = head_.bytes;
        to_ = begin(head_);
        if (!lost_.empty()) return;
        within_ = true;
      }
      const auto step = std::min(left_, in_ - at);
      if (to_ != nullptr && step > 0) {
        std::memcpy(to_, inbox_.data() + at, step);
        to_ += step;
      }
      at += step;
      left_ -= step;
      if (left_ > 0) break;
      within_ = false;
      end(head_);
    }
    in_ -= at;
    if (at > 0 && in_ > 0) std::memmove(inbox_.data(), inbox_.data() + at, in_);
  }

  Socket socket_;
  std::string lost_;
  bool closed_ = false;  // nothing can be written any more
  std::deque<Outgoing> out_;
  std::vector<std::byte> inbox_;  // what has come and has not been sorted: a part of a head
  std::size_t in_ = 0;            // bytes of it
  SocketHead head_{};             // of what is being read
  bool within_ = false;           // it is
  std::byte* to_ = nullptr;       // where its next byte goes; null: nowhere
  std::size_t left_ = 0;          // bytes of it that have not come
};

}  // namespace dhp
