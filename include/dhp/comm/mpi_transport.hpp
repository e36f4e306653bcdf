// MpiTransport: MPI, as a transport for PeerComm. A wait looks at MPI again and again, and at whether the world has
// ended: MPI moves messages only while it is called. Needs MPI.
#pragma once

#include <dhp/comm/mpi_messages.hpp>
#include <dhp/comm/peer_transport.hpp>

#include <mpi.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

class MpiTransport final : public PeerTransport {
 public:
  /// Collective over the ranks of the communicator.
  explicit MpiTransport(std::shared_ptr<MpiDuplicate> comm,
                        std::size_t piece_bytes = MpiMessages::longest_piece_bytes)
      : comm_(std::move(comm)), messages_(std::make_shared<MpiMessages>(comm_, piece_bytes)) {}

  [[nodiscard]] int rank() const override { return comm_->rank(); }
  [[nodiscard]] int size() const override { return comm_->size(); }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to,
                            std::uint64_t tag) override {
    // One kind of message for both ways; this one is not written to.
    auto message = made(const_cast<std::byte*>(data), bytes, to, tag, true);
    messages_->send(message);
    return std::make_unique<UnderWay>(messages_, std::move(message));
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from,
                               std::uint64_t tag) override {
    auto message = made(data, bytes, from, tag, false);
    messages_->receive(message);
    return std::make_unique<UnderWay>(messages_, std::move(message));
  }
  // MPI copies a message in a call of the rank that receives it: reduced at once, it is still in the core's cache.
  [[nodiscard]] std::size_t chunk_bytes() const override { return std::size_t{1} << 19; }
  void end() noexcept override { messages_->end(); }
  /// As MpiMessages::close().
  [[nodiscard]] bool close() { return messages_->close(); }
  [[nodiscard]] std::string description(int) const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "MPI";
    const std::string whole(text);  // of many lines, or "Open MPI v4.1.4, package: ..."
    auto name = whole.substr(0, whole.find_first_of(",\n"));
    std::replace(name.begin(), name.end(), '\t', ' ');
    return concat("MPI (", name, ")");
  }

 private:
  using Message = MpiMessages::Message;
  [[nodiscard]] static MpiMessages::Shared made(std::byte* data, std::size_t bytes, int peer,
                                                std::uint64_t tag, bool sends) {
    return std::make_shared<Message>(
        Message{.data = data, .bytes = bytes, .peer = peer, .tag = tag, .sends = sends});
  }

  class UnderWay final : public Transfer {
   public:
    UnderWay(std::shared_ptr<MpiMessages> messages, MpiMessages::Shared message)
        : messages_(std::move(messages)), message_(std::move(message)) {}
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;
    ~UnderWay() override {
      if (!waited_) release();
    }
    [[nodiscard]] bool wait() override {
      // As long as a slow network needs for the message: MPI may move it only while it is called.
      constexpr double slow_bytes_per_s = 1e9;
      PollPause pause(0.001 + static_cast<double>(message_->bytes) / slow_bytes_per_s);
      for (bool moved = false; !messages_->poll(*message_, moved); pause(moved))
        if (messages_->ended()) return false;
      waited_ = true;
      if (!message_->wrong.empty()) throw PeerLost(message_->peer, message_->wrong);
      return true;
    }

   private:
    void release() noexcept {
      try {
        messages_->release(message_);
      } catch (const std::exception&) {  // MPI itself has failed
      }
    }
    std::shared_ptr<MpiMessages> messages_;
    MpiMessages::Shared message_;
    bool waited_ = false;
  };

  std::shared_ptr<MpiDuplicate> comm_;
  std::shared_ptr<MpiMessages> messages_;
};

}  // namespace dhp
