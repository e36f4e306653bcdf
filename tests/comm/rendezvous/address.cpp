// The names of this machine, parsing of host:port, and the addresses of this machine.
#include <dhp/comm/rendezvous/address.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using namespace dhp::detail;

TEST_CASE("host name: the own name is recognized with or without a domain") {
  const auto label = detail::host_name().substr(0, detail::host_name().find('.'));
  const bool named = label != "localhost";  // every machine has this name
  CHECK(is_own_name(detail::host_name()) == named);
  CHECK(is_own_name(label + ".cluster.example") == named);
  for (const auto& other : {label + "x", "x." + label, std::string("localhost"), std::string()})
    CHECK_FALSE(is_own_name(other));
}

std::string parsed(std::string_view text) {
  try {
    const auto place = parse_host_port("place", text);
    return concat(place.host, " ", place.port);
  } catch (const Error& error) {
    return error.sentence();
  }
}

TEST_CASE("host port: the usual forms are parsed") {
  CHECK(parsed("localhost") == "localhost 0");
  CHECK(parsed("node-1.cluster:29400") == "node-1.cluster 29400");
  CHECK(parsed("10.0.0.1:1") == "10.0.0.1 1");
  CHECK(parsed("[::1]:65535") == "::1 65535");
  CHECK(parsed("[fd00::2]") == "fd00::2 0");
}

TEST_CASE("host port: malformed text is refused") {
  for (const char* port : {"", "0", "65536", "-1", "1x", "99999999999", " 1"})
    CHECK(parsed(concat("a:", port)) ==
          concat("place: \"", port, "\" is no port; ports are whole numbers from 1 to 65535"));
  CHECK(parsed("::1") ==
        "place: \"::1\" is an IPv6 address without brackets; write [::1] or [::1]:port");
  CHECK(parsed("[::1") == "place: \"[::1\" does not close its bracket");
  for (const char* text : {"", ":1", "[]:1", "[::1]1", "[::1]x:1", "a b:1", "a]:1", "http//a:1"})
    CHECK(parsed(text) == concat("place: \"", text, "\" is not host:port"));
}

TEST_CASE("address: the own address towards a host is found") {
  CHECK(address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(address_towards("127.0.0.2") == "127.0.0.1");  // all of 127/8 is this machine
  CHECK(has(message_of([] { (void)address_towards("no-such-host.invalid"); }),
            "the host no-such-host.invalid cannot be found: the name cannot be resolved"));
}

TEST_CASE("address: loopback addresses are recognized") {
  for (const char* here : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) CHECK(is_loopback(here));
  for (const char* there : {"192.0.2.1", "2001:db8::1", "0.0.0.0"}) CHECK_FALSE(is_loopback(there));
}

TEST_CASE("address: the machine listens on its own addresses and interfaces only") {
  (void)listening_at("127.0.0.1");
  CHECK(address_of_interface("lo") == "127.0.0.1");
  CHECK(has(message_of([] { (void)listening_at("192.0.2.1"); }),  // reserved by RFC 5737
            "this machine cannot listen at 192.0.2.1: Cannot assign requested address"));
  CHECK(has(message_of([] { (void)address_of_interface("no_such_card"); }),
            "this machine has no network interface no_such_card; it has lo"));
}

}  // namespace
