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

TEST_CASE("gloo: an interface and an address that do not exist") {
  const auto at = [](const GlooOptions& options) {
    const auto there = [&](const std::shared_ptr<ProcessWorld>& world) {
      return gloo_world(world, options);
    };
    return ends_of(2, 5, there, [](PeerComm&, Cpu&) {}).front();
  };
  CHECK(contains(at({.interface = "no_such_card"}),
                 "this machine has no network interface no_such_card; it has lo"));
  CHECK(contains(at({.address = "192.0.2.1"}),  // of no machine: RFC 5737
                 "this machine cannot listen at 192.0.2.1: Cannot assign requested address"));
}

}  // namespace
