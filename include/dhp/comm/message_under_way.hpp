// MessageUnderWay: a message of SharedMessages or SocketMessages as a transfer, which is withdrawn where nobody has
// seen its end.
#pragma once

#include <dhp/comm/peer_transport.hpp>

#include <memory>
#include <utility>

namespace dhp {

template <class Messages>
class MessageUnderWay final : public PeerTransport::Transfer {
 public:
  MessageUnderWay(std::shared_ptr<Messages> messages, typename Messages::Shared message)
      : messages_(std::move(messages)), message_(std::move(message)) {}
  MessageUnderWay(const MessageUnderWay&) = delete;
  MessageUnderWay& operator=(const MessageUnderWay&) = delete;
  ~MessageUnderWay() override {
    if (!done_) messages_->withdraw(message_);
  }
  [[nodiscard]] bool wait() override {
    done_ = messages_->wait(*message_);
    return done_;
  }

 private:
  std::shared_ptr<Messages> messages_;
  typename Messages::Shared message_;
  bool done_ = false;
};

}  // namespace dhp
