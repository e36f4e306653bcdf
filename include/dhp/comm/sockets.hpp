// SocketTransport: connections of TCP between every two ranks of a world, as a transport for PeerComm. Who connects
// proves to belong to the job, as in the store where the ranks have met; what goes over the connections afterwards is
// not protected.
#pragma once

#include <dhp/comm/message_transport.hpp>
#include <dhp/comm/peers.hpp>
#include <dhp/comm/socket_mesh.hpp>
#include <dhp/comm/socket_messages.hpp>

#include <memory>

namespace dhp {

class SocketTransport final : public MessageTransport<SocketMessages> {
 public:
  /// Collective over the ranks of the world; connects every two of them. Throws Error where that fails.
  SocketTransport(ProcessWorld& world, const SocketMeshOptions& options,
                  SocketMessages::Options messages = {})
      : MessageTransport(world.rank(), world.size(), concat("TCP at ", options.address),
                         std::make_shared<SocketMessages>(connect_mesh(world, options), messages)) {
  }
};

}  // namespace dhp
