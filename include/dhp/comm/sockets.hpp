// SocketTransport: connections of TCP between every two ranks of a world, as a transport for PeerComm. Who connects
// proves to belong to the job, as in the store where the ranks have met; what goes over the connections afterwards is
// not protected.
#pragma once

#include <dhp/comm/message_under_way.hpp>
#include <dhp/comm/peers.hpp>
#include <dhp/comm/socket_mesh.hpp>
#include <dhp/comm/socket_messages.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

class SocketTransport final : public PeerTransport {
 public:
  /// Collective over the ranks of the world; connects every two of them. Throws Error where that fails.
  SocketTransport(ProcessWorld& world, const SocketMeshOptions& options,
                  SocketMessages::Options messages = {})
      : rank_(world.rank()),
        size_(world.size()),
        description_(concat("TCP at ", options.address)),
        messages_(std::make_shared<SocketMessages>(connect_mesh(world, options), messages)) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to,
                            std::uint64_t tag) override {
    auto message = made(data, bytes, to, tag);
    messages_->send(message);
    return under_way(std::move(message));
  }
  [[nodiscard]] Handle send_ahead(const std::byte* data, std::size_t bytes, int to,
                                  std::uint64_t tag) override {
    auto message = made(data, bytes, to, tag);
    messages_->send_ahead(message);
    return under_way(std::move(message));
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from,
                               std::uint64_t tag) override {
    auto message = made(data, bytes, from, tag);
    messages_->receive(message);
    return under_way(std::move(message));
  }
  void end() noexcept override { messages_->end(); }
  [[nodiscard]] std::string description(int) const override { return description_; }

 private:
  // One kind of message for both ways; one that is sent is not written to.
  [[nodiscard]] static SocketLink::Message made(const std::byte* data, std::size_t bytes, int peer,
                                                std::uint64_t tag) {
    return std::make_shared<SocketMessage>(SocketMessage{
        .data = const_cast<std::byte*>(data), .bytes = bytes, .peer = peer, .tag = tag});
  }
  [[nodiscard]] Handle under_way(SocketLink::Message message) const {
    return std::make_unique<MessageUnderWay<SocketMessages>>(messages_, std::move(message));
  }

  int rank_;
  int size_;
  std::string description_;
  std::shared_ptr<SocketMessages> messages_;
};

}  // namespace dhp
