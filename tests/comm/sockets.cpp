// PeerComm over connections of TCP, on the loopback of this machine.
#include <dhp/comm/sockets.hpp>
#include <tests/comm/peer_suite.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

auto over_sockets(SocketMeshOptions options = {}, SocketMessages::Options messages = {}) {
  return [=](const std::shared_ptr<ProcessWorld>& world) {
    return PeerComm(world, std::make_shared<SocketTransport>(*world, options, messages));
  };
}

TEST_CASE("sockets: what every transport has to do") { check_peers(over_sockets()); }

TEST_CASE("sockets: what is a short message changes nothing") {
  for (const std::size_t short_bytes : {0, 100})
    check_moves(over_sockets({}, {.short_bytes = short_bytes}), 3);
}

TEST_CASE("sockets: IPv6") { check_moves(over_sockets({.address = "::1"}), 3); }

TEST_CASE("sockets: they say what carries an axis") {
  const auto ends = ends_of(2, patient_s, over_sockets(), [](PeerComm& world, Cpu&) {
    check(world.transport() == "TCP at 127.0.0.1", world.transport());
  });
  for (const auto& end : ends) CHECK(end == "");
}

}  // namespace
