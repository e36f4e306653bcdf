// Addresses, time limits, and sockets that close themselves.
#include <dhp/comm/rendezvous/socket.hpp>
#include <tests/support/tensors.hpp>

namespace {

using namespace dhp::detail;

std::string first_address(const std::string& host) {
  std::string problem;
  const auto all = resolve({host, 80}, problem);
  return all.empty() ? problem : to_text(all[0]);
}

TEST_CASE("socket: hosts are resolved, and loopback addresses are recognized") {
  CHECK(first_address("127.0.0.1") == "127.0.0.1:80");
  CHECK(first_address("::1") == "[::1]:80");
  CHECK(first_address("::ffff:10.1.2.3") == "10.1.2.3:80");
  CHECK(first_address("no host has this name").starts_with("the name cannot be resolved ("));
  CHECK(first_address("fe80::1") == "a link-local address needs its interface: fe80::1%eth0");
  CHECK(first_address("fe80::1%lo") == "[fe80::1%lo]:80");
  CHECK(to_text(HostPort{"fe80::1", 5}) == "[fe80::1]:5");
  CHECK(to_text(HostPort{"node7", 65535}) == "node7:65535");
  for (const auto* const host : {"127.0.0.1", "127.8.9.1", "::1"}) CHECK(HostPort{host}.loopback());
  for (const auto* const host : {"0.0.0.0", "10.0.0.1", "126.0.0.1", "::", "fe80::1", "::2", ""})
    CHECK(!HostPort{host}.loopback());
}

TEST_CASE("socket: no call takes longer than its deadline") {
  const auto listener = Socket::listening({"127.0.0.1", 0});
  REQUIRE(listener);
  const auto client = Socket::connected(listener.own_end(), Deadline(20));
  REQUIRE(client);
  std::string bytes(100, 'x');
  const auto start = std::chrono::steady_clock::now();
  CHECK(!client.receive(bytes, Deadline(0.05)));
  CHECK(errno == ETIMEDOUT);
  CHECK(!client.receive(bytes, Deadline(0)));
  CHECK(errno == ETIMEDOUT);
  // The other side does not read, so the buffers fill up.
  CHECK(!client.send(std::string(std::size_t{1} << 25, 'x'), Deadline(0.05)));
  CHECK(errno == ETIMEDOUT);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() >= 0.1);
  CHECK(took.count() < 20);
}

}  // namespace
