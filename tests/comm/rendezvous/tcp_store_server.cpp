// Clients without the secret, and members that send malformed requests, cannot disturb the ranks of a store.
#include <tests/comm/rendezvous/stores.hpp>

#include <sys/resource.h>

#include <deque>

namespace {

// A raw connection that has proved the secret as a rank. The test writes its frames.
struct Member {
  explicit Member(int port, int rank) : raw(port) {
    const auto hello = raw.frame();
    check(hello && hello->type == handshake::server_hello, "no hello");
    const handshake::Hello mine{hello->payload, nonce(), static_cast<std::uint32_t>(rank), "job"};
    said = write_frame(handshake::client_hello, write_hello(mine, secret));
    check(raw.send(said), "the server does not listen");
    const auto answer = raw.frame();
    check(answer && answer->payload == mine.proof("server", secret), "no welcome");
  }
  RawConnection raw;
  std::string said;
};

std::string find_a() {
  std::string payload;
  append_field(payload, "a");
  return payload;
}

std::deque<RawConnection> silent_ones(const TcpStoreServer& server, int count) {
  std::deque<RawConnection> made;
  while (count-- > 0) made.emplace_back(server.port());
  return made;
}

// Checks that the store still serves its ranks.
void check_alive(TcpStoreServer& server) {
  TcpStore client(client_of(server, 99));
  server.set("alive", "yes");
  CHECK(client.find("alive").value() == "yes");
}

TEST_CASE("tcp store server: a thousand garbage connections are refused and block no client") {
  Notes notes;
  TcpStoreServer server(serve(notes));
  TcpStore client(client_of(server));
  std::uint64_t refused = 0;
  for (int i = 0; i < 1000; ++i) {
    RawConnection raw(server.port());
    auto garbage = nonce(200);
    if (i % 2 == 0) garbage = write_frame(static_cast<std::uint8_t>(i % 5), garbage);
    (void)raw.send(garbage);
    if (i % 10 < 2) {
      client.set("a", concat(i));
      CHECK(client.find("a").value() == concat(i));
      refused += raw.closes();
    }
  }
  CHECK(refused == 200);
  CHECK(server.list("").size() == 1);
  CHECK(has(notes.all(), "its first frame is no hello"));
  CHECK(has(notes.all(), "no frames of this version of a store"));
  CHECK(has(notes.all(), "no more of these are reported"));
  CHECK(notes.all().size() < 40000);
}

TEST_CASE("tcp store server: silent or slow handshakes are closed at the time limit") {
  Notes notes;
  auto options = serve(notes);
  options.silence_s = 0.3;
  TcpStoreServer server(options);
  auto silent = silent_ones(server, 64);
  const auto start = std::chrono::steady_clock::now();
  RawConnection slow(server.port());
  const auto hello = slow.frame();
  const handshake::Hello mine{hello->payload, nonce(), 1, "job"};
  const auto said = write_frame(handshake::client_hello, write_hello(mine, secret));
  TcpStore client(client_of(server));
  std::size_t bytes = 0;
  while (bytes < said.size() && slow.send(said.substr(bytes, 1))) {
    client.set("bytes", concat(++bytes));
    sleep_ms(10);
  }
  CHECK(bytes < said.size());
  CHECK(seconds_since(start) > 0.2);
  for (auto& one : silent) REQUIRE(one.closes());
  CHECK(has(notes.all(), "it has not said who it is within 0.3 s"));
  sleep_ms(350);  // a rank that is let in has no such limit
  client.set("still", "here");
}

TEST_CASE("tcp store server: unauthenticated connections are limited, and the oldest goes first") {
  auto options = serve();
  options.most_unauthenticated = 8;
  TcpStoreServer server(options);
  auto silent = silent_ones(server, 30);
  check_alive(server);
  for (std::size_t at = 0; at < 20; ++at) REQUIRE(silent[at].closes());
  CHECK(!silent.back().closes(0.05));
}

TEST_CASE("tcp store server: a recorded handshake cannot be replayed") {
  Notes notes;
  TcpStoreServer server(serve(notes));
  std::string said;
  {
    Member member(server.port(), 5);
    said = member.said;
  }
  RawConnection replayed(server.port());
  const auto hello = replayed.frame();
  CHECK(replayed.send(said));
  const auto answer = replayed.frame();
  CHECK(answer->type == handshake::refused);
  CHECK(replayed.closes());
  CHECK(has(notes.all(), "as rank 5 it does not have the secret of the job"));
}

TEST_CASE("tcp store server: a client that gives up before its welcome has not left") {
  TcpStoreServer server(serve());
  { const Member far_away(server.port(), 5); }
  TcpStore client(client_of(server, 5));  // connects once the first connection has ended
  CHECK(client.list(dhp::detail::left_prefix).empty());
}

TEST_CASE("tcp store server: malformed requests end the connection and change nothing") {
  Notes notes;
  TcpStoreServer server(serve(notes));
  std::string two, three;
  for (const auto* const text : {"a", "b"}) append_field(two, text);
  append_field(three = two, "c");
  int rank = 5;
  for (const auto& [type, payload] :
       std::vector<std::pair<std::uint8_t, std::string>>{{77, find_a()},
                                                         {store_request::set, find_a()},
                                                         {store_request::set, three},
                                                         {store_request::set, two.substr(0, 9)},
                                                         {store_request::find, "a"},
                                                         {store_request::set_unless, two},
                                                         {store_request::set_unless, three + "d"},
                                                         {store_request::set_unless, "abc"},
                                                         {store_request::remove, two}}) {
    Member member(server.port(), rank++);
    CHECK(member.raw.send(write_frame(type, payload)));
    CHECK(member.raw.closes());
  }
  CHECK(has(notes.all(), ", rank 7: its request makes no sense"));
  Member member(server.port(), rank);
  std::string header = write_frame(store_request::set, std::string(longest_request + 1, 'x'));
  CHECK(member.raw.send(header.substr(0, Frame::header_bytes)));
  CHECK(member.raw.closes());
  CHECK(has(notes.all(), "a frame is longer than is allowed"));
  CHECK(server.list("") == server.list(dhp::detail::left_prefix));
}

TEST_CASE("tcp store server: random requests of a member change only what they ask for") {
  TcpStoreServer server(serve());
  std::mt19937_64 random(1);
  std::size_t answered = 0, ended = 0;
  for (int rank = 1; rank < 100; ++rank) {
    Member member(server.port(), rank);
    for (int i = 0; i < 20; ++i) {
      // Short fields, mostly as many as the request needs. The last type is not a request.
      const std::size_t fields_of[] = {2, 1, 1, 1, 3, 1};
      const auto type = random() % 6;
      std::string payload;
      for (auto left = random() % 8 == 0 ? random() % 5 : fields_of[type]; left > 0; --left)
        append_field(payload, std::string(random() % 3, static_cast<char>('a' + random() % 3)));
      if (random() % 16 == 0) payload += static_cast<char>(random());
      const bool sent = member.raw.send(
          write_frame(static_cast<std::uint8_t>(store_request::set + type), payload));
      const auto answer = sent ? member.raw.frame() : std::nullopt;
      ++(answer ? answered : ended);
      if (!answer) break;
      CHECK(answer->type >= store_answer::done);
      CHECK(answer->type <= store_answer::not_set);
    }
  }
  CHECK(answered > 200);
  CHECK(ended > 40);
  for (const auto& [key, value] : server.list(""))
    CHECK((key.starts_with(dhp::detail::left_prefix) || (key.size() <= 2 && value.size() <= 2)));
  server.remove("alive");
  check_alive(server);
}

TEST_CASE("tcp store server: errors of a request reach the client as sentences") {
  TcpStoreServer server(serve());
  Member member(server.port(), 5);
  std::string payload;
  append_field(payload, std::string(257, 'k'));
  CHECK(member.raw.send(write_frame(store_request::find, payload)));
  const auto answer = member.raw.frame();
  CHECK(answer->type == store_answer::failed);
  CHECK(answer->payload == "a key of a store has 1 to 256 bytes, got 257");
  CHECK(member.raw.send(write_frame(store_request::find, find_a())));
  CHECK(member.raw.frame()->type == store_answer::none);
}

TEST_CASE("tcp store server: a client that does not read its answers is not read from") {
  TcpStoreServer server(serve());
  server.set("a", std::string(KeyValueStore::longest_value_bytes, 'v'));
  Member member(server.port(), 5);
  std::string requests;
  for (int i = 0; i < 16; ++i) requests += write_frame(store_request::find, find_a());
  CHECK(member.raw.send(requests));
  check_alive(server);
  // As soon as it reads, it gets all answers.
  for (int i = 0; i < 16; ++i)
    CHECK(member.raw.frame()->payload.size() == KeyValueStore::longest_value_bytes);
}

TEST_CASE("tcp store server: connections wait until file descriptors are free again") {
  int port_pipe[2], end_pipe[2];
  REQUIRE((::pipe(port_pipe) == 0 && ::pipe(end_pipe) == 0));
  const auto child = ::fork();
  if (child == 0) {  // uses no doctest, and limits its own descriptors
    ::close(end_pipe[1]);
    try {
      TcpStoreServer server(serve());
      const rlimit limit{64, 64};
      (void)::setrlimit(RLIMIT_NOFILE, &limit);
      const int port = server.port();
      char none = 0;
      if (::write(port_pipe[1], &port, sizeof port) == sizeof port)
        while (::read(end_pipe[0], &none, 1) < 0 && errno == EINTR) {
        }  // until the parent closes it
    } catch (...) {}
    ::_exit(0);
  }
  ::close(end_pipe[0]);
  const Socket port_end(port_pipe[0]);
  Socket child_lives(end_pipe[1]);
  ::close(port_pipe[1]);
  int port = 0;
  REQUIRE(::read(port_end.fd(), &port, sizeof port) == sizeof port);
  std::deque<RawConnection> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(port);
  TcpStore client({.rank = 1, .port = port, .secret = secret, .timeout_s = hang_s / 2, .ports = 1});
  client.set("a", "b");
  CHECK(client.find("a") == "b");
  child_lives.close();
  CHECK(::waitpid(child, nullptr, 0) == child);
}

}  // namespace
