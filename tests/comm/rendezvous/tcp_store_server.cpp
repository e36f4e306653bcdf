// Clients without the secret, and members that send malformed requests, cannot disturb the ranks of a store.
#include <tests/comm/rendezvous/stores.hpp>

#include <sys/resource.h>

#include <deque>

namespace {

using Request = KeyValueStore::Request;
using Kind = Request::Kind;

// The frame by which a client proves the secret as a rank.
std::string hello_of(const std::string& server_nonce, int rank) {
  handshake::Hello mine{nonce(), static_cast<std::uint32_t>(rank), "job"};
  mine.proof = mine.proof_of("client", server_nonce, secret);
  return write_frame(Fields::written(mine));
}

// A raw connection that has proved the secret as a rank. The test writes its frames.
struct Member {
  explicit Member(int port, int rank) : raw(port), hello(hello_of(raw.frame().value(), rank)) {
    check(raw.send(hello), "the server does not listen");
    const auto answer = Fields::parsed<handshake::Welcome>(raw.frame().value());
    check(answer && answer->refusal == handshake::Refusal::none, "no welcome");
  }
  bool asks(const Request& request) { return raw.send(write_frame(Fields::written(request))); }
  KeyValueStore::Answer answer() {
    return Fields::parsed<KeyValueStore::Answer>(raw.frame().value()).value();
  }
  RawConnection raw;
  std::string hello;
};

std::deque<RawConnection> silent_ones(const TcpStoreServer& server, int count) {
  std::deque<RawConnection> result;
  while (count-- > 0) result.emplace_back(server.port());
  return result;
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
    if (i % 2 == 0) garbage = write_frame(garbage);
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
  const auto hello = hello_of(slow.frame().value(), 1);
  TcpStore client(client_of(server));
  std::size_t bytes = 0;
  while (bytes < hello.size() && slow.send(hello.substr(bytes, 1))) {
    client.set("bytes", concat(++bytes));
    sleep_ms(10);
  }
  CHECK(bytes < hello.size());
  CHECK(seconds_since(start) > 0.2);
  for (auto& one : silent) REQUIRE(one.closes());
  CHECK(has(notes.all(), "it has not said who it is within 0.3 s"));
  sleep_ms(350);  // a rank that is let in has no such limit
  client.set("still", "here");
}

TEST_CASE("tcp store server: unauthenticated connections are limited, and the oldest goes first") {
  auto options = serve();
  options.max_unauthenticated = 8;
  TcpStoreServer server(options);
  auto silent = silent_ones(server, 30);
  check_alive(server);
  for (std::size_t at = 0; at < 20; ++at) REQUIRE(silent[at].closes());
  CHECK(!silent.back().closes(0.05));
}

TEST_CASE("tcp store server: a recorded handshake cannot be replayed") {
  Notes notes;
  TcpStoreServer server(serve(notes));
  std::string hello;
  {
    Member member(server.port(), 5);
    hello = member.hello;
  }
  RawConnection replayed(server.port());
  (void)replayed.frame();
  CHECK(replayed.send(hello));
  const auto answer = Fields::parsed<handshake::Welcome>(replayed.frame().value());
  CHECK(answer->refusal == handshake::Refusal::secret);
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
  const auto good = Fields::written(Request{Kind::set, "a", "b"});
  std::vector<std::string> wrong{good + "x", Fields::written(Request{Kind(77), "a", "b"})};
  for (std::size_t size = 0; size < good.size(); ++size) wrong.push_back(good.substr(0, size));
  int rank = 5;
  for (const auto& payload : wrong) {
    Member member(server.port(), rank++);
    CHECK(member.raw.send(write_frame(payload)));
    CHECK(member.raw.closes());
  }
  CHECK(has(notes.all(), ", rank 7: its request makes no sense"));
  Member member(server.port(), rank);
  const auto longer = write_frame(std::string(longest_request_bytes + 1, 'x'));
  CHECK(member.raw.send(longer.substr(0, frame_header_bytes)));
  CHECK(member.raw.closes());
  CHECK(has(notes.all(), "a frame is longer than is allowed"));
  CHECK(server.list("") == server.list(dhp::detail::left_prefix));
}

TEST_CASE("tcp store server: errors of a request reach the client as sentences") {
  TcpStoreServer server(serve());
  Member member(server.port(), 5);
  CHECK(member.asks({Kind::find, std::string(257, 'k')}));
  CHECK(member.answer().error == "a key of a store has 1 to 256 bytes, got 257");
  CHECK(member.asks({Kind::find, "a"}));
  CHECK(member.answer().entries.empty());
}

TEST_CASE("tcp store server: a client that does not read its answers is not read from") {
  TcpStoreServer server(serve());
  server.set("a", std::string(KeyValueStore::longest_value_bytes, 'v'));
  Member member(server.port(), 5);
  for (int i = 0; i < 16; ++i) CHECK(member.asks({Kind::find, "a"}));
  check_alive(server);
  // As soon as it reads, it gets all answers.
  for (int i = 0; i < 16; ++i)
    CHECK(member.answer().entries.at(0).second.size() == KeyValueStore::longest_value_bytes);
}

TEST_CASE("tcp store server: connections wait until file descriptors are free again") {
  const Child child([](const Child::Send& send) {
    TcpStoreServer server(serve());
    const rlimit limit{64, 64};
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
    send(concat(server.port()));
    sleep_ms(1e3 * hang_s);
  });
  const int port = std::stoi(child.heard());
  std::deque<RawConnection> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(port);
  TcpStore client({.rank = 1, .port = port, .secret = secret, .timeout_s = hang_s / 2, .ports = 1});
  client.set("a", "b");
  CHECK(client.find("a") == "b");
}

}  // namespace
