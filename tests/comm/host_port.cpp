// host:port, and what is not.
#include <dhp/comm/host_port.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

std::string parsed(std::string_view text) {
  try {
    const auto place = HostPort::parse("--master", text);
    return concat(place.host, " ", place.port);
  } catch (const Error& error) {
    return error.sentence();
  }
}

TEST_CASE("host port: as people write it") {
  CHECK(parsed("localhost") == "localhost 0");
  CHECK(parsed("node-1.cluster:29400") == "node-1.cluster 29400");
  CHECK(parsed("10.0.0.1:1") == "10.0.0.1 1");
  CHECK(parsed("[::1]:65535") == "::1 65535");
  CHECK(parsed("[fd00::2]") == "fd00::2 0");
}

TEST_CASE("host port: what makes no sense is refused") {
  for (const char* port : {"", "0", "65536", "-1", "1x", "99999999999", " 1"})
    CHECK(parsed(concat("a:", port)) ==
          concat("--master: \"", port, "\" is no port; ports are whole numbers from 1 to 65535"));
  CHECK(parsed("::1") ==
        "--master: \"::1\" is an IPv6 address without brackets; write [::1] or [::1]:port");
  CHECK(parsed("[::1") == "--master: \"[::1\" does not close its bracket");
  for (const char* text : {"", ":1", "[]:1", "[::1]1", "[::1]x:1", "a b:1", "a]:1", "http//a:1"})
    CHECK(parsed(text) == concat("--master: \"", text, "\" is not host:port"));
}

}  // namespace
