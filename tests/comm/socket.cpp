// Addresses, time limits, and sockets that close themselves.
#include <dhp/comm/socket.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

SocketAddress address_of(const std::string& host, int port = 0) {
  std::string problem;
  auto all = resolve(host, problem);
  check(!all.empty(), problem);
  all[0].set_port(port);
  return all[0];
}

TEST_CASE("socket: addresses have a text, a port, and reach others or not") {
  CHECK(to_text(address_of("127.0.0.1", 29400)) == "127.0.0.1:29400");
  CHECK(to_text(address_of("::1", 80)) == "[::1]:80");
  CHECK(host_and_port("fe80::1", 5) == "[fe80::1]:5");
  CHECK(host_and_port("node7", 65535) == "node7:65535");
  CHECK(address_of("10.1.2.3", 65535).port() == 65535);
  for (const auto* const host : {"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"})
    CHECK(address_of(host).loopback());
  for (const auto* const host :
       {"0.0.0.0", "10.0.0.1", "126.0.0.1", "::", "fe80::1", "::2", "::ffff:10.0.0.1"})
    CHECK(!address_of(host).loopback());
  CHECK(to_text(SocketAddress()) == "an unknown address");
  CHECK(host_of(address_of("10.1.2.3", 80)) == "10.1.2.3");
  CHECK(host_of(address_of("::1", 80)) == "::1");
  CHECK(host_of(address_of("::ffff:10.1.2.3", 80)) == "10.1.2.3");
  CHECK(host_of(SocketAddress()).empty());
  std::string problem;
  CHECK(resolve("no host has this name", problem).empty());
  CHECK(problem.find("the name cannot be resolved (") == 0);
}

TEST_CASE("socket: nothing takes longer than its deadline") {
  const auto listener = Socket::of_family(AF_INET);
  const auto local = address_of("127.0.0.1");
  REQUIRE(::bind(listener.fd(), local.data(), local.size()) == 0);
  REQUIRE(::listen(listener.fd(), 4) == 0);
  const auto there = SocketAddress::of(listener.fd(), false);
  const auto client = Socket::of_family(AF_INET);
  REQUIRE(client.connect(there, Deadline(20)));
  std::string bytes(100, 'x');
  const auto start = std::chrono::steady_clock::now();
  CHECK(!client.receive(bytes, Deadline(0.05)));
  CHECK(errno == ETIMEDOUT);
  CHECK(!client.receive(bytes, Deadline(0)));
  CHECK(errno == ETIMEDOUT);
  // Nobody reads: at some time no more can be sent.
  CHECK(!client.send(std::string(std::size_t{1} << 25, 'x'), Deadline(0.05)));
  CHECK(errno == ETIMEDOUT);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() >= 0.1);
  CHECK(took.count() < 5);
}

TEST_CASE("socket: bytes arrive, and the end is seen") {
  auto listener = Socket::of_family(AF_INET);
  const auto local = address_of("127.0.0.1");
  REQUIRE(::bind(listener.fd(), local.data(), local.size()) == 0);
  REQUIRE(::listen(listener.fd(), 4) == 0);
  const auto there = SocketAddress::of(listener.fd(), false);
  auto client = Socket::of_family(AF_INET);
  REQUIRE(client.connect(there, Deadline(20)));
  REQUIRE(listener.wait(POLLIN, Deadline(20)));
  Socket server(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK));
  CHECK(client.send("hello", Deadline(20)));
  std::string bytes(100, 'x');
  CHECK(server.receive(bytes, Deadline(20)));
  CHECK(bytes == "hello");
  client.close();
  CHECK(!client);
  bytes.resize(10);
  CHECK(!server.receive(bytes, Deadline(20)));
  CHECK(errno == ECONNRESET);
  const int fd = server.fd();
  { const Socket moved(std::move(server)); }
  CHECK(::fcntl(fd, F_GETFD) == -1);
  // Nobody listens there any more.
  const auto port = there.port();
  listener.close();
  CHECK(!Socket::of_family(AF_INET).connect(address_of("127.0.0.1", port), Deadline(20)));
}

}  // namespace
