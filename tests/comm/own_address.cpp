#include <dhp/comm/own_address.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

TEST_CASE("own address: on the way to a host") {
  CHECK(address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(address_towards("127.0.0.2") == "127.0.0.1");  // all of 127/8 is this machine
  CHECK(contains(message_of([] { (void)address_towards("no-such-host.invalid"); }),
                 "the host no-such-host.invalid cannot be found: the name cannot be resolved"));
}

TEST_CASE("own address: whether only this machine can talk to an address") {
  for (const char* here : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) CHECK(is_loopback(here));
  for (const char* there : {"192.0.2.1", "2001:db8::1", "0.0.0.0"}) CHECK_FALSE(is_loopback(there));
}

TEST_CASE("own address: what is this machine's, and what is not") {
  check_own_address("127.0.0.1");
  CHECK(address_of_interface("lo") == "127.0.0.1");
  CHECK(contains(message_of([] { check_own_address("192.0.2.1"); }),  // of no machine: RFC 5737
                 "this machine cannot listen at 192.0.2.1: Cannot assign requested address"));
  CHECK(contains(message_of([] { (void)address_of_interface("no_such_card"); }),
                 "this machine has no network interface no_such_card; it has lo"));
}

}  // namespace
