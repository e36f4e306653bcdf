// Who gets a connection to a rank, and who does not.
#include <dhp/comm/sockets.hpp>
#include <tests/comm/process_ranks.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace tests;

constexpr double patient_s = 60;

auto meshed(SocketMeshOptions options = {}) {
  return [=](const std::shared_ptr<ProcessWorld>& world) { return connect_mesh(*world, options); };
}
const auto nothing = [](auto&, Cpu&) {};

/// As soon as rank 0 listens.
SocketAddress address_of_first(Store& store) {
  for (;;) {
    if (const auto text = store.find("sockets/at/0")) {
      const auto at = HostPort::parse("address", *text);
      std::string problem;
      auto address = resolve(at.host, problem).front();
      address.set_port(at.port);
      return address;
    }
    sleep_ms(1);
  }
}
Socket connection_to(const SocketAddress& address) {
  auto socket = Socket::of_family(address.family());
  REQUIRE(socket.connect(address, Deadline(5)));
  return socket;
}

TEST_CASE("socket_mesh: every two ranks are connected, and nobody to itself") {
  for (const int n : {1, 2, 3, 8}) {
    std::atomic<int> connections = 0;
    const auto ends = ends_of(n, patient_s, meshed(), [&](std::map<int, Socket>& links, Cpu&) {
      connections += static_cast<int>(links.size());
    });
    for (const auto& end : ends) CHECK(end == "");
    CHECK(connections == n * (n - 1));
  }
}

TEST_CASE("socket_mesh: strangers do not join, and hold nobody up") {
  const auto store = std::make_shared<MemoryStore>();
  std::thread strangers([&] {
    const auto address = address_of_first(*store);
    std::mt19937 random(1);
    std::vector<Socket> open;
    for (int number = 0; number < 400; ++number) {
      open.push_back(connection_to(address));
      if (number % 4 == 0) continue;  // this one says nothing
      std::string bytes(number % 4 == 1 ? 40 : 2000, '\0');
      for (auto& byte : bytes) byte = static_cast<char>(random());
      if (number % 4 == 3) {  // what a rank would say that has another secret
        const handshake::Terms terms{std::string(handshake::nonce_bytes, 'n'),
                                     std::string(handshake::nonce_bytes, 'm'), 2};
        bytes = FrameWriter().write(handshake::client_hello,
                                    write_client_hello(terms, {"job rank 0", "another secret"}));
      }
      (void)open.back().send(bytes, Deadline(5));
    }
    sleep_ms(500);
  });
  const auto start = std::chrono::steady_clock::now();
  const auto make = [](const std::shared_ptr<ProcessWorld>& world) {
    if (world->rank() == 2) sleep_ms(400);  // the strangers are first
    return connect_mesh(*world, {.job = "job", .secret = "the secret of the job"});
  };
  const auto ends = ends_of(3, patient_s, make, nothing, store);
  CHECK(seconds_since(start) < 4);  // less than strangers may be silent for
  for (const auto& end : ends) CHECK(end == "");
  strangers.join();
}

TEST_CASE("socket_mesh: a rank with another secret, or of another job, is refused") {
  for (const auto& odd : {SocketMeshOptions{.job = "job", .secret = "another secret"},
                          SocketMeshOptions{.job = "other", .secret = "secret"}}) {
    const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
      return connect_mesh(
          *world, world->rank() == 1 ? odd : SocketMeshOptions{.job = "job", .secret = "secret"});
    };
    const auto ends = ends_of(2, patient_s, make, nothing);
    CHECK(contains(ends[1], "rank 1 and rank 0 at 127.0.0.1:"));
    CHECK(contains(ends[1],
                   " do not know the same secret; give all ranks the same DHP_JOB_SECRET or "
                   "DHP_JOB_SECRET_FILE"));
    CHECK(contains(ends[0], "do not know the same secret"));
  }
}

TEST_CASE(
    "socket_mesh: an earlier start of the job, or a rank that there is not, is refused although it "
    "knows the secret") {
  struct Claim {
    std::string start;
    std::uint32_t rank;
  };
  for (const auto& claim : {Claim{"another", 1}, {"", 1}, {"this", 0}, {"this", 2}}) {
    const auto store = std::make_shared<MemoryStore>();
    std::atomic<bool> welcome = true;
    std::thread earlier([&] {
      const auto socket = connection_to(address_of_first(*store));
      FrameReader reader(handshake::longest_payload);
      std::string bytes(22, '\0');
      REQUIRE(socket.receive(bytes, Deadline(5)));
      reader.feed(bytes);
      const auto hello = reader.next();
      REQUIRE(hello.has_value());
      const handshake::Terms terms{hello->payload, nonce(handshake::nonce_bytes), claim.rank};
      const auto start = claim.start == "this" ? store->find("sockets/start").value() : claim.start;
      const handshake::Job job{"job rank 0", concat("secret", start)};
      REQUIRE(
          socket.send(FrameWriter().write(handshake::client_hello, write_client_hello(terms, job)),
                      Deadline(5)));
      bytes.resize(100);
      if (socket.receive(bytes, Deadline(5))) reader.feed(bytes);
      const auto answer = reader.next();
      welcome = answer && answer->type == handshake::welcome;
    });
    const auto make = [](const std::shared_ptr<ProcessWorld>& world) {
      if (world->rank() == 1) sleep_ms(300);
      return connect_mesh(*world, {.job = "job", .secret = "secret"});
    };
    for (const auto& end : ends_of(2, patient_s, make, nothing, store)) CHECK(end == "");
    earlier.join();
    CHECK_FALSE(welcome);
  }
}

TEST_CASE("socket_mesh: an address where nobody listens, and one that is not this machine's") {
  const auto nowhere = [](const std::shared_ptr<ProcessWorld>& world) {
    if (world->rank() != 0) return connect_mesh(*world, {});
    world->store().set("sockets/start", "start");
    world->store().set("sockets/at/0", "127.0.0.1:1");
    sleep_ms(300);
    return std::map<int, Socket>();
  };
  CHECK(
      ends_of(2, patient_s, nowhere, nothing)[1] ==
      "rank 1 cannot connect to rank 0 at 127.0.0.1:1: Connection refused; can this machine reach "
      "that address? --network-interface chooses where a rank listens");
  CHECK(contains(ends_of(2, patient_s, meshed({.address = "192.0.2.1"}), nothing).front(),
                 " cannot listen at 192.0.2.1: Cannot assign requested address"));
}

TEST_CASE("socket_mesh: a rank that does not answer, until the limit or the end of the world") {
  const auto deaf = [](double connect_s, int ranks, auto third) {
    return ends_of(
        ranks, patient_s,
        [&](const std::shared_ptr<ProcessWorld>& world) {
          if (world->rank() == 2) third();
          if (world->rank() != 0) return connect_mesh(*world, {.connect_s = connect_s});
          Socket listener = Socket::of_family(AF_INET);
          REQUIRE(::listen(listener.fd(), 8) == 0);
          auto at = SocketAddress::of(listener.fd(), false);
          world->store().set("sockets/start", "start");
          world->store().set("sockets/at/0", concat("127.0.0.1:", at.port()));
          while (!world->ended()) sleep_ms(5);
          return std::map<int, Socket>();
        },
        nothing);
  };
  CHECK(contains(deaf(0.3, 2, [] {})[1], ": Connection timed out; can this machine reach"));
  CHECK(deaf(60, 3, [] { fail("out of paper"); })[1] == "rank 2: out of paper");
}

}  // namespace
