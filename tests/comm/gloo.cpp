// PeerComm over Gloo, on the loopback of this machine.
#include <dhp/comm/gloo.hpp>
#include <tests/comm/peer_suite.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

TEST_CASE("gloo: what every transport has to do") {
  check_peers([](const std::shared_ptr<ProcessWorld>& world) {
    return gloo_world(world, {.address = "127.0.0.1"});
  });
}

TEST_CASE("gloo: an address that does not exist") {
  const auto there = [](const std::shared_ptr<ProcessWorld>& world) {
    return gloo_world(world, {.address = "192.0.2.1"});  // of no machine: RFC 5737
  };
  CHECK(contains(ends_of(2, 5, there, [](PeerComm&, Cpu&) {}).front(),
                 "this machine cannot listen at 192.0.2.1: Cannot assign requested address"));
}

}  // namespace
