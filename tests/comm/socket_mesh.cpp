// Who gets a connection to a rank, and who does not.
#include <dhp/comm/sockets.hpp>
#include <tests/comm/process_ranks.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <deque>
#include <latch>
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

// A connection without a client.
class RawConnection {
 public:
  explicit RawConnection(int port) {
    std::string problem;
    auto address = resolve("127.0.0.1", problem).at(0);
    address.set_port(port);
    socket_ = Socket::of_family(address.family());
    const bool connected = socket_.connect(address, Deadline(20));
    check(connected, "cannot connect: ", std::strerror(errno));
  }
  // False where the other side has closed.
  bool send(const std::string& bytes) { return socket_.send(bytes, Deadline(20)); }
  std::optional<Frame> frame(double seconds = 20) {
    const Deadline deadline(seconds);
    for (std::string bytes;;) {
      if (auto got = reader_.next()) return got;
      bytes.resize(4096);
      if (!socket_.receive(bytes, deadline)) return std::nullopt;
      reader_.feed(bytes);
    }
  }
  // What comes next; empty: nothing any more.
  std::string bytes() {
    std::string got(1 << 16, '\0');
    return socket_.receive(got, Deadline(20)) ? got : std::string();
  }
  // Whether the other side closes within that time; what it says before is lost.
  bool closes(double seconds = 20) {
    const Deadline deadline(seconds);
    for (std::string bytes(4096, '\0'); socket_.receive(bytes, deadline);) bytes.resize(4096);
    return errno != ETIMEDOUT;
  }

 private:
  Socket socket_;
  FrameReader reader_{1 << 20};
};

/// As soon as that rank listens.
int port_of(KeyValueStore& store, int rank) {
  const auto at = store.get(concat("sockets/at/", rank), patient_s);
  return HostPort::parse("address", at).port;
}
/// The first frame of a rank that connects to rank 0.
std::string hello_of(std::uint32_t rank, const std::string& server_nonce, const std::string& key) {
  const handshake::Terms terms{server_nonce, nonce(handshake::nonce_bytes), rank};
  return FrameWriter().write(handshake::client_hello,
                             write_client_hello(terms, {"job rank 0", key}));
}
/// What is said to it then: the type of a frame, or 0: nothing, it is hung up on.
int answer_to(RawConnection& connection, std::uint32_t rank, const std::string& key) {
  const auto hello = connection.frame();
  REQUIRE(hello.has_value());
  (void)connection.send(hello_of(rank, hello->payload, key));
  const auto answer = connection.frame();
  return answer ? answer->type : 0;
}
const SocketMeshOptions of_job{.job = "job", .secret = "secret"};

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
  std::latch all_there(1);
  std::thread strangers([&] {
    const int port = port_of(*store, 0);
    std::mt19937 random(1);
    std::deque<RawConnection> open;
    for (int number = 0; number < 400; ++number) {
      open.emplace_back(port);
      if (number % 4 == 0) continue;  // this one says nothing
      std::string bytes(number % 4 == 1 ? 40 : 2000, '\0');
      for (auto& byte : bytes) byte = static_cast<char>(random());
      if (number % 4 == 3)  // what a rank would say that has another secret
        bytes = hello_of(2, std::string(handshake::nonce_bytes, 'n'), "another secret");
      (void)open.back().send(bytes);
    }
    all_there.count_down();
    sleep_ms(500);
  });
  const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
    if (world->rank() == 2) all_there.wait();
    return connect_mesh(*world, {.job = "job", .secret = "the secret of the job", .silence_s = 60});
  };
  const auto start = std::chrono::steady_clock::now();
  for (const auto& end : ends_of(3, patient_s, make, nothing, store)) CHECK(end == "");
  CHECK(seconds_since(start) < 40);  // less than strangers may be silent for
  strangers.join();
}

TEST_CASE("socket_mesh: a rank with another secret, or of another job, is refused") {
  for (const auto& odd : {SocketMeshOptions{.job = "job", .secret = "another secret"},
                          SocketMeshOptions{.job = "other", .secret = "secret"}}) {
    const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
      return connect_mesh(*world, world->rank() == 1 ? odd : of_job);
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
      RawConnection connection(port_of(*store, 0));
      const auto start = claim.start == "this" ? store->find("sockets/start").value() : claim.start;
      welcome = answer_to(connection, claim.rank, "secret" + start) == handshake::welcome;
    });
    const auto make = [](const std::shared_ptr<ProcessWorld>& world) {
      if (world->rank() == 1) sleep_ms(300);
      return connect_mesh(*world, of_job);
    };
    for (const auto& end : ends_of(2, patient_s, make, nothing, store)) CHECK(end == "");
    earlier.join();
    CHECK_FALSE(welcome);
  }
}

TEST_CASE("socket_mesh: a rank that is connected does not get a second connection") {
  std::vector<int> answers;
  const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
    if (world->rank() == 0) return connect_mesh(*world, of_job);
    if (world->rank() == 1) {
      const int port = port_of(world->store(), 0);
      const auto key = "secret" + world->store().find("sockets/start").value();
      RawConnection first(port), twin(port), other(port);
      answers = {answer_to(first, 1, key), answer_to(twin, 1, key), answer_to(other, 2, key)};
    }
    return std::map<int, Socket>();
  };
  for (const auto& end : ends_of(3, patient_s, make, nothing)) CHECK(end == "");
  CHECK(answers == std::vector<int>{handshake::welcome, 0, handshake::welcome});
}

/// Rank 1 connects to rank 0 when it has done as strangers do, with the port of rank 0.
std::vector<std::string> ends_after(const SocketMeshOptions& options,
                                    const std::function<void(int)>& strangers) {
  const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
    if (world->rank() == 1) strangers(port_of(world->store(), 0));
    return connect_mesh(*world, options);
  };
  return ends_of(2, patient_s, make, nothing);
}

TEST_CASE("socket_mesh: strangers are no more than so many, and the oldest goes first") {
  const auto ends = ends_after({.silence_s = 60, .most_strangers = 3}, [](int port) {
    std::deque<RawConnection> silent;
    for (int number = 0; number < 12; ++number) REQUIRE(silent.emplace_back(port).frame());
    constexpr std::size_t kept = 3 + 2;  // two may be the ranks
    std::size_t closed = 0;
    while (closed < silent.size() - kept && silent[closed].closes()) ++closed;
    CHECK(closed == silent.size() - kept);
    CHECK_FALSE(silent[closed].closes(0.05));
  });
  for (const auto& end : ends) CHECK(end == "");
}

TEST_CASE("socket_mesh: who is silent, or slow, is hung up on after a while") {
  const auto ends = ends_after({.silence_s = 0.5}, [](int port) {
    const auto start = std::chrono::steady_clock::now();
    RawConnection silent(port), slow(port);
    const auto hello = hello_of(1, slow.frame()->payload, "secret");
    std::size_t bytes = 0;
    while (bytes < hello.size() && slow.send(hello.substr(bytes, 1))) {
      ++bytes;
      sleep_ms(20);
    }
    CHECK(bytes < hello.size());
    CHECK(silent.closes());
    CHECK(seconds_since(start) > 0.5);
  });
  for (const auto& end : ends) CHECK(end == "");
}

/// Of a frame of that length, in bytes.
std::string header_of(std::uint32_t length) {
  std::string header{static_cast<char>(FrameWriter::version),
                     static_cast<char>(handshake::client_hello)};
  append_number(header, length);
  return header;
}

TEST_CASE("socket_mesh: who begins a frame that is too long is hung up on at once") {
  const auto ends = ends_after({.silence_s = 60}, [](int port) {
    for (const std::uint32_t length : {513u, 1u << 30, ~0u}) {
      RawConnection stranger(port);
      REQUIRE(stranger.send(header_of(length)));
      CHECK(stranger.closes());
    }
  });
  for (const auto& end : ends) CHECK(end == "");
}

TEST_CASE("socket_mesh: a thousand connections of random bytes while three ranks connect") {
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<int> connections = 0;
  std::thread strangers([&] {
    const int ports[] = {port_of(*store, 0), port_of(*store, 1)};
    std::mt19937 random(2);
    std::deque<RawConnection> open;
    try {
      for (; connections < 1000; ++connections) {
        open.emplace_back(ports[connections % 2]);
        std::string bytes(random() % 700, '\0');
        for (auto& byte : bytes) byte = static_cast<char>(random());
        if (random() % 2 == 0) bytes = header_of(random() % 600) + bytes;
        (void)open.back().send(bytes);
        if (open.size() > 50) open.erase(open.begin() + random() % 50);
      }
    } catch (const Error&) {  // the ranks are connected, and do not listen any more
    }
  });
  const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
    while (world->rank() == 2 && connections < 900) sleep_ms(1);
    return connect_mesh(*world, {.secret = "secret", .silence_s = 60});
  };
  std::atomic<int> links = 0;
  const auto ends = ends_of(
      3, patient_s, make,
      [&](std::map<int, Socket>& mine, Cpu&) { links += static_cast<int>(mine.size()); }, store);
  strangers.join();
  for (const auto& end : ends) CHECK(end == "");
  CHECK(links == 6);
}

TEST_CASE(
    "socket_mesh: one that listens in the place of a rank proves nothing, and is not believed") {
  // What it says to the hello of a rank, which says that it knows the secret.
  using Says = std::function<std::string(const handshake::ClientHello&)>;
  const auto end_against = [](const Says& says) {
    const auto make = [&](const std::shared_ptr<ProcessWorld>& world) {
      if (world->rank() == 1) return connect_mesh(*world, of_job);
      const auto listener = Socket::of_family(AF_INET);
      REQUIRE(::listen(listener.fd(), 8) == 0);
      const int port = SocketAddress::of(listener.fd(), false).port();
      world->store().set("sockets/start", "start");
      world->store().set("sockets/at/0", concat("127.0.0.1:", port));
      REQUIRE(listener.wait(POLLIN, Deadline(5)));
      const Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK));
      const auto server_nonce = nonce(handshake::nonce_bytes);
      REQUIRE(socket.send(FrameWriter().write(handshake::server_hello, server_nonce), Deadline(5)));
      FrameReader reader(handshake::longest_payload);
      std::string bytes(1000, '\0');
      REQUIRE(socket.receive(bytes, Deadline(5)));
      reader.feed(bytes);
      const auto frame = reader.next();
      REQUIRE(frame.has_value());
      const auto hello = handshake::read_client_hello(frame->payload, server_nonce);
      REQUIRE(hello.has_value());
      REQUIRE(socket.send(says(*hello), Deadline(5)));
      return std::map<int, Socket>();
    };
    return ends_of(2, patient_s, make, nothing)[1];
  };
  const auto welcome = [](const std::string& proof) {
    return FrameWriter().write(handshake::welcome, proof);
  };
  const handshake::Job guess{"job rank 0", "another secret"};
  for (const Says& says :
       {Says([&](auto& hello) { return welcome(hello.terms.server_proof(guess)); }),
        Says([&](auto& hello) { return welcome(hello.proof); }),
        Says([&](auto&) { return welcome(""); })})
    CHECK(contains(end_against(says), "rank 1 and rank 0 at 127.0.0.1:"));
  CHECK(contains(end_against([](auto&) { return header_of(~0u); }),
                 " says: a frame is longer than is allowed"));
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
