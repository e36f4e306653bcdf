// MessageTransport: SharedMessages or SocketMessages as a PeerTransport.
#pragma once

#include <dhp/comm/peer_transport.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

template <class Messages>
class MessageTransport : public PeerTransport {
 public:
  /// description: what carries the bytes, for people.
  MessageTransport(int rank, int size, std::string description, std::shared_ptr<Messages> messages)
      : rank_(rank),
        size_(size),
        description_(std::move(description)),
        messages_(std::move(messages)) {}

  [[nodiscard]] int rank() const final { return rank_; }
  [[nodiscard]] int size() const final { return size_; }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to,
                            std::uint64_t tag) final {
    auto message = made(data, bytes, to, tag);
    messages_->send(message);
    return std::make_unique<UnderWay>(messages_, std::move(message));
  }
  [[nodiscard]] Handle send_ahead(const std::byte* data, std::size_t bytes, int to,
                                  std::uint64_t tag) final {
    auto message = made(data, bytes, to, tag);
    messages_->send_ahead(message);
    return std::make_unique<UnderWay>(messages_, std::move(message));
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from,
                               std::uint64_t tag) final {
    auto message = made(data, bytes, from, tag);
    messages_->receive(message);
    return std::make_unique<UnderWay>(messages_, std::move(message));
  }
  void end() noexcept final { messages_->end(); }
  [[nodiscard]] std::string description(int) const final { return description_; }

 protected:
  [[nodiscard]] const Messages& messages() const { return *messages_; }

 private:
  using Message = typename Messages::Message;
  using Shared = typename Messages::Shared;
  // One kind of message for both ways; one that is sent is not written to.
  [[nodiscard]] static Shared made(const std::byte* data, std::size_t bytes, int peer,
                                   std::uint64_t tag) {
    return std::make_shared<Message>(
        Message{.data = const_cast<std::byte*>(data), .bytes = bytes, .peer = peer, .tag = tag});
  }

  /// Withdrawn where nobody has seen its end.
  class UnderWay final : public Transfer {
   public:
    UnderWay(std::shared_ptr<Messages> messages, Shared message)
        : messages_(std::move(messages)), message_(std::move(message)) {}
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;
    ~UnderWay() override {
      if (!done_) messages_->withdraw(message_);
    }
    [[nodiscard]] bool wait() override {
      done_ = messages_->wait(*message_);
      return done_;
    }

   private:
    std::shared_ptr<Messages> messages_;
    Shared message_;
    bool done_ = false;
  };

  int rank_;
  int size_;
  std::string description_;
  std::shared_ptr<Messages> messages_;
};

}  // namespace dhp
