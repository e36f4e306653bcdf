// Stores over TCP: their use, the clients that they accept, and their end. See also tcp_store_server.cpp.
#include <tests/comm/rendezvous/stores.hpp>

namespace {

// Whether a client fails with this text. Tries again, because a store on a busy machine may answer too late.
bool soon_says(const RendezvousOptions& from, const std::string& text) {
  const auto says = [&] { return has(message_of([&] { TcpStore none(from); }), text); };
  return poll_until(says, hang_s);
}

TEST_CASE("tcp store: the server and its clients have the same keys") {
  TcpStoreServer server(serve());
  check_store(server);
  TcpStore client(client_of(server));
  check_store(client);
  TcpStore other(client_of(server, 2));
  check_shared(server, client, 300);
  CHECK(other.list("big/") == server.list("big/"));
  CHECK(client.description() == concat("TCP store at 127.0.0.1:", server.port()));
  CHECK(client.description() == server.description());
}

TEST_CASE("tcp store: of many concurrent creations of a key one succeeds") {
  TcpStoreServer server(serve());
  std::vector<std::unique_ptr<TcpStore>> clients;
  std::vector<KeyValueStore*> stores{&server};
  for (int rank = 1; rank <= 4; ++rank)
    stores.push_back(
        clients.emplace_back(std::make_unique<TcpStore>(client_of(server, rank))).get());
  check_one_creates(stores, 200);
  check_one_creates(clients, 200);  // without the server, which is faster than they are
}

TEST_CASE("tcp store: members of an elastic job may have any number") {
  auto options = serve();
  options.size = 0;
  TcpStoreServer server(options);
  auto from = client_of(server, 2147483647);
  from.size = 0;
  from.refused_s = 0.05;
  auto last = std::make_unique<TcpStore>(from);
  check_store(*last);
  from.rank = 0;
  const TcpStore first(from);
  from.rank = 1234567890;
  TcpStore member(from);
  CHECK(has(message_of([&] { TcpStore again(from); }),
            " refuses member 1234567890: another process is that rank already"));
  from.rank = -1;  // 2^32 - 1 on the wire
  CHECK(has(message_of([&] { TcpStore none(from); }), " refuses member -1: "));
  CHECK(server.list(dhp::detail::left_prefix).empty());
  last.reset();
  CHECK(member.get("left/2147483647", 10) == "");
  CHECK(member.list(dhp::detail::left_prefix).size() == 1);
  from.rank = 2147483647;
  from.refused_s = hang_s;
  TcpStore again(from);  // a member that has left may come back
  CHECK(again.find("left/2147483647").has_value());
}

TEST_CASE("tcp store: jobs that share a range of ports find their own server") {
  const int port = free_port();
  auto options = serve("monday");
  options.port = port;
  TcpStoreServer monday(options);
  options.job = "tuesday";
  options.secret = "another secret of another job";
  TcpStoreServer tuesday(options);
  CHECK(tuesday.port() > monday.port());
  RendezvousOptions from{.rank = 1,
                         .port = port,
                         .job = "tuesday",
                         .secret = "another secret of another job",
                         .timeout_s = hang_s};
  TcpStore client(from);
  client.set("day", "tuesday");
  CHECK(tuesday.find("day").value() == "tuesday");
  CHECK(!monday.find("day").has_value());
  from.job = "wednesday";
  from.timeout_s = 1;
  from.ports = 2;
  CHECK(soon_says(from, "belongs to another job; start rank 0"));
  CHECK(soon_says(from, concat("rank 1 has found no store of job \"wednesday\" at 127.0.0.1:", port,
                               " within 1 s: the TCP store at 127.0.0.1:")));
  options.ports = 1;
  CHECK(has(message_of([&] { TcpStoreServer none(options); }),
            concat("rank 0 cannot listen at 127.0.0.1:", port, ": Address already in use")));
}

TEST_CASE("tcp store: clients skip ports that accept and stay silent") {
  const int port = free_port();
  std::vector<Socket> mute;
  for (int at = 0; at < 8; ++at) mute.push_back(Socket::listening({"127.0.0.1", port + at}));
  auto options = serve();
  options.port = port;
  TcpStoreServer server(options);
  const auto start = std::chrono::steady_clock::now();
  TcpStore client({.rank = 1, .port = port, .secret = secret, .timeout_s = hang_s});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(server.port() >= port + 8);
  CHECK(took.count() < 3);  // waits 0.5 s for the first port, less for the others
}

TEST_CASE("tcp store: a wrong or missing secret is refused, and no secret is logged") {
  Notes notes;
  TcpStoreServer server(serve(notes));
  for (const std::string wrong : {"", "wrong but long enough"}) {
    auto from = client_of(server, 3);
    from.secret = wrong;
    from.refused_s = 0.05;
    CHECK(message_of([&] { TcpStore none(from); }) ==
          concat("the TCP store at 127.0.0.1:", server.port(),
                 " refuses rank 3: its secret is not the job's; set DHP_JOB_SECRET, or "
                 "DHP_JOB_SECRET_FILE, to the same on all ranks"));
  }
  CHECK(has(notes.all(), "as rank 3 it does not have the secret of the job"));
  CHECK(!has(notes.all(), secret));
  CHECK(!has(notes.all(), "wrong but"));
  // The server may also be the side that does not know the secret.
  auto impostor = serve();
  impostor.secret = "wrong but long enough";
  TcpStoreServer other(impostor);
  auto from = client_of(other);
  from.refused_s = 0;
  CHECK(has(message_of([&] { TcpStore none(from); }), "its secret is not the job's"));
  TcpStore client(client_of(server, 3));
  CHECK(client.list("").empty());
}

TEST_CASE("tcp store: a server that cannot prove the secret is refused") {
  const auto listener = Socket::listening({"127.0.0.1", 0});
  const int port = listener.own_end().port;
  std::atomic<bool> stop = false;
  std::thread impostor([&] {
    while (!stop) {
      Socket one(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK));
      if (!one) {
        sleep_ms(1);
        continue;
      }
      (void)one.send(write_frame(std::string(16, 'n')), Deadline(5));
      std::string bytes(4096, '\0');
      (void)one.receive(bytes, Deadline(5));
      const handshake::Welcome welcome{.proof = std::string(32, 'p')};
      (void)one.send(write_frame(Fields::written(welcome)), Deadline(5));
      (void)one.receive(bytes, Deadline(5));
    }
  });
  const RendezvousOptions from{
      .rank = 1, .port = port, .secret = secret, .timeout_s = 1, .ports = 1};
  CHECK(soon_says(from, "cannot prove that it belongs to this"));
  stop = true;
  impostor.join();
}

TEST_CASE("tcp store: each rank has one process, and ranks outside the world are refused") {
  auto options = serve();
  options.size = 4;
  TcpStoreServer server(options);
  auto from = client_of(server, 3);
  from.refused_s = 0.05;
  {
    TcpStore first(from);
    CHECK(has(message_of([&] { TcpStore second(from); }),
              "refuses rank 3: another process is that rank already"));
    first.set("still", "here");
  }
  from.refused_s = hang_s;  // the server notices the closed connection a moment later
  TcpStore again(from);
  CHECK(again.find("still").value() == "here");
  from.rank = 4;
  from.refused_s = 0.05;
  CHECK(has(message_of([&] { TcpStore none(from); }),
            "refuses rank 4: rank 0 was started with a smaller world size"));
  from.size = 0;
  CHECK(has(message_of([&] { TcpStore none(from); }),
            "refuses member 4: the job of rank 0 is not elastic"));
}

TEST_CASE("tcp store: a server that ends is lost at once, and for good") {
  auto server = std::make_unique<TcpStoreServer>(serve());
  TcpStore client(client_of(*server, 2));
  client.set("a", "b");
  const auto name = server->description();
  server.reset();
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS((void)client.find("a"), KeyValueStoreLost);
  const auto message = message_of([&] { client.set("a", "b"); });
  CHECK(has(message, concat("rank 2 has lost the ", name, ": it has closed the connection")));
  CHECK(has(message, "; has rank 0, which holds it, ended or been stopped?"));
  CHECK(seconds_since(start) < hang_s);
}

TEST_CASE("tcp store: a server that is stopped is lost at the time limit") {
  Child child([](const Child::Send& send) {
    const TcpStoreServer server(serve());
    send(concat(server.port()));
    sleep_ms(1e3 * hang_s);
  });
  const int number = std::stoi(child.heard());
  TcpStore client({.rank = 5,
                   .port = number,
                   .secret = secret,
                   .timeout_s = hang_s,
                   .operation_timeout_s = 0.2,
                   .ports = 1});
  child.signal(SIGSTOP);
  CHECK(WIFSTOPPED(child.wait(WUNTRACED)));
  const auto start = std::chrono::steady_clock::now();
  const auto message = message_of([&] { (void)client.find("a"); });
  CHECK(has(message, concat("rank 5 has lost the TCP store at 127.0.0.1:", number,
                            ": it has not answered within 0.2 s")));
  CHECK(seconds_since(start) >= 0.2);
  CHECK(seconds_since(start) < hang_s);
  CHECK_THROWS_AS((void)client.find("a"), KeyValueStoreLost);
}

TEST_CASE("tcp store: an error says where and for which job the client searched") {
  const int port = free_port();
  const RendezvousOptions from{.rank = 2,
                               .master = "localhost",
                               .port = port,
                               .job = "j",
                               .secret = secret,
                               .timeout_s = 0.1,
                               .variables = "RANK, MASTER_PORT"};
  const auto start = std::chrono::steady_clock::now();
  CHECK(
      message_of([&] { TcpStore none(from); }) ==
      concat(
          "rank 2 has found no store of job \"j\" at localhost:", port,
          " within 0.1 s: nothing answers (Connection refused); start rank 0 there, with the same "
          "DHP_JOB, or without one the same port, or unset those left over (RANK, MASTER_PORT)"));
  CHECK(seconds_since(start) < hang_s);
  auto nameless = from;
  nameless.master = "no host has this name";
  CHECK(has(message_of([&] { TcpStore none(nameless); }),
            " within 0.1 s: the name cannot be resolved ("));
  nameless.port = 0;
  CHECK(has(message_of([&] { TcpStore none(nameless); }), "ports go from 1 to 65535"));
}

TEST_CASE("tcp store: without a secret the store serves this machine only") {
  TcpStoreServer server({.size = 2});
  TcpStore client({.rank = 1, .port = server.port(), .timeout_s = hang_s});
  check_store(client);
  const std::string way_out = "give all ranks the same DHP_JOB_SECRET or DHP_JOB_SECRET_FILE";
  CHECK(message_of([] { TcpStoreServer none({.master = "0.0.0.0"}); }) ==
        concat("rank 0 cannot listen at 0.0.0.0:0: others can reach that address, so the job needs "
               "a secret: ",
               way_out));
  CHECK(has(message_of([] { TcpStore none({.rank = 1, .master = "192.0.2.1", .port = 9}); }),
            way_out));
  CHECK(has(message_of([] { TcpStoreServer none({.master = "192.0.2.1", .secret = secret}); }),
            "rank 0 cannot listen at 192.0.2.1:0: Cannot assign requested address"));
}

/// An address of this machine that others can reach, "" if there is none.
std::string open_address() {
  std::string found;
  (void)message_of([&] { found = address_towards("192.0.2.1"); });  // reserved by RFC 5737
  return is_loopback(found) ? std::string() : found;
}

TEST_CASE("tcp store: a rank's address is the one of its connection to rank 0") {
  auto options = serve();
  options.master = "0.0.0.0";
  TcpStoreServer server(options);
  CHECK(server.own_address().empty());
  const auto own_address = [&](int rank, const std::string& host) {
    auto from = client_of(server, rank);
    from.master = host;
    TcpStore client(from);
    return client.own_address();
  };
  CHECK(own_address(1, "127.0.0.1") == "127.0.0.1");
  CHECK(server.own_address() == "127.0.0.1");
  const auto open = open_address();
  if (open.empty()) {
    MESSAGE("skipped: this machine has no address but loopback");
    return;
  }
  CHECK(own_address(2, open) == open);
  CHECK(server.own_address() == open);
  CHECK(own_address(3, "127.0.0.1") == "127.0.0.1");
  CHECK(server.own_address() == open);  // ranks of this machine can use it, too
}

TEST_CASE("tcp store: a host name that maps to loopback listens on all addresses") {
  const auto listens = [](const std::string& host, const std::string& found, bool with_secret) {
    std::string all;
    for (const auto& one : addresses_to_listen({host}, {{found}}, with_secret))
      all += one.host + " ";
    return all;
  };
  const auto own = detail::host_name();
  if (!is_own_name(own)) {
    MESSAGE("skipped: this machine has the name of all, localhost");
    return;
  }
  CHECK(listens(own, "127.0.1.1", true) == ":: 0.0.0.0 ");
  CHECK(listens(own + ".cluster", "::1", true) == ":: 0.0.0.0 ");
  CHECK(listens(own, "127.0.1.1", false) == "127.0.1.1 ");  // no secret keeps others out
  CHECK(listens(own, "192.0.2.1", true) == "192.0.2.1 ");
  for (const char* other : {"localhost", "127.0.0.1", "another"})
    CHECK(listens(other, "127.0.0.1", true) == "127.0.0.1 ");
  const auto open = open_address();
  if (open.empty() || !is_loopback(own)) {
    MESSAGE("skipped: this machine does not call itself by a loopback address");
    return;
  }
  auto options = serve();
  options.master = own;
  TcpStoreServer server(options);
  for (const auto& host : {own, open, std::string("127.0.0.1")}) {
    auto from = client_of(server);
    from.master = host;
    TcpStore client(from);
    check_store(client);
  }
  CHECK(server.own_address() == open);
  options.secret.clear();
  CHECK(has(TcpStoreServer(options).description(), " for this machine alone: it has no secret)"));
}

TEST_CASE("tcp store: works over IPv6") {
  if (!Socket::listening({"::1", 0})) {
    MESSAGE("skipped: this machine has no [::1]");
    return;
  }
  auto options = serve();
  options.master = "::1";
  TcpStoreServer server(options);
  auto from = client_of(server);
  from.master = "::1";
  TcpStore client(from);
  check_store(client);
  CHECK(client.description() == concat("TCP store at [::1]:", server.port()));
}

}  // namespace
