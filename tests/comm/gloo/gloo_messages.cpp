// On the loopback of this machine.
#include <dhp/comm/gloo/gloo_messages.hpp>
#include <tests/comm/messages/process_suite.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;
using dhp::comm::GlooMessages;

TEST_CASE("gloo: what every engine has to do") {
  check_processes(
      [](World& world) { return std::make_shared<GlooMessages>(world, "127.0.0.1"); });
}

TEST_CASE("gloo: an address that does not exist") {
  const auto ends = ends_with(2, 5, [](const std::shared_ptr<World>& world) {
    const GlooMessages there(*world, "192.0.2.1");  // of no machine: RFC 5737
  });
  CHECK(contains(ends.front(),
                 "this machine cannot listen at 192.0.2.1: Cannot assign requested address"));
}

}  // namespace
