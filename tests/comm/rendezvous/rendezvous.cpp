// Ranks meet, or every rank is told which ranks are missing. Secrets come from the environment; no error shows them.
#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/rendezvous/rendezvous.hpp>
#include <tests/comm/rendezvous/stores.hpp>
#include <tests/support/folder.hpp>

namespace {

RendezvousOptions at_port(int port, int rank, int size) {
  return {.rank = rank, .size = size, .port = port, .secret = secret, .timeout_s = hang_s};
}

// Runs body(rank) on one thread per rank, and returns the message of each rank's error, or "no error".
template <class Body>
std::vector<std::string> on_threads(const std::vector<int>& ranks, Body body) {
  std::vector<std::string> errors(ranks.size());
  tests::on_threads(ranks.size(),
                    [&](std::size_t at) { errors[at] = message_of([&] { body(ranks[at]); }); });
  return errors;
}
// Rank 0 keeps its store until all ranks have left.
void leave(KeyValueStore& store, int rank, int size) {
  store.set(concat("left/", rank), "");
  if (rank == 0) check(wait_for_keys(store, "left/", size, hang_s), "a rank has not left");
}

TEST_CASE("rendezvous: ranks that start in any order have one store") {
  const int port = free_port();
  std::atomic<int> wrong = 0;
  const auto errors = on_threads({0, 1, 2, 3}, [&](int rank) {
    sleep_ms(rank == 0 ? 40 : rank == 3 ? 80 : 0);
    const auto store = rendezvous(at_port(port, rank, 4));
    for (int other = 0; other < 4; ++other)
      if (!has(store->find(concat("arrived/", other)).value_or(""), concat(" ", ::getpid())))
        ++wrong;
    if (rank == 2) store->set("hello", "from 2");
    if (rank == 3) sleep_ms(60);
    if (store->get("hello", hang_s) != "from 2") ++wrong;
    leave(*store, rank, 4);
  });
  CHECK(errors == std::vector<std::string>(4, "no error"));
  CHECK(wrong == 0);
}

TEST_CASE("rendezvous: every rank names the ranks that are missing") {
  TcpStoreServer server(at_port(free_port(), 0, 5));
  const int port = server.port();
  announce(server, at_port(port, 0, 5));
  std::vector<std::string> waits;
  const auto errors = on_threads({0, 1, 3}, [&](int rank) {
    auto options = at_port(port, rank, 5);
    if (rank != 0) return (void)rendezvous(options);
    check(wait_for_keys(server, "arrived/", 3, hang_s), "they do not come");
    options.timeout_s = 0.1;
    options.quiet_s = 0.05;
    options.log = [&](const auto& text) { waits.push_back(text); };
    gather_ranks(server, options);
  });
  REQUIRE(waits.size() == 1);
  CHECK(waits[0] == concat("waits for ranks 2 and 4 at the ", server.description()));
  for (const auto& text : errors)
    CHECK(text ==
          concat("after 0.1 s ranks 0, 1 and 3 have arrived at the TCP store at 127.0.0.1:", port,
                 ", ranks 2 and 4 have not; start all where they can reach it, with the same "
                 "DHP_JOB, or without one the same port"));
  auto late = at_port(free_port(), 4, 5);
  late.timeout_s = 1;
  late.quiet_s = 0;
  late.log = [&](const auto& text) { waits.push_back(text); };
  CHECK(has(message_of([&] { (void)rendezvous(late); }),
            "rank 4 has found no store of job \"job\" at 127.0.0.1:"));
  REQUIRE(waits.size() == 2);
  CHECK(waits[1].starts_with("waits for a store of job \"job\" at 127.0.0.1:"));
}

TEST_CASE("rendezvous: all ranks at once name a rank that ends early") {
  const int port = free_port();
  const auto errors = on_threads({0, 1, 2}, [&](int rank) {
    const auto options = at_port(port, rank, 4);
    if (rank != 2) return (void)rendezvous(options);
    TcpStore store(options);
    announce(store, options);
    (void)store.get("arrived/1", hang_s);
  });
  const auto ended =
      concat("rank 2 has ended before rank 3 has arrived at the TCP store at 127.0.0.1:", port,
             "; start all again");
  CHECK(errors == std::vector<std::string>{ended, ended, "no error"});
}

TEST_CASE("rendezvous: ranks started with different world sizes are told so") {
  const int port = free_port();
  std::shared_ptr<KeyValueStore> held;
  const auto errors = on_threads({0, 1}, [&](int rank) {
    auto store = rendezvous(at_port(port, rank, 2 + rank));
    if (rank == 0) held = std::move(store);
  });
  CHECK(errors[0] == "no error");
  CHECK(errors[1] ==
        "rank 1 was started as one of 3 ranks, but rank 0 as one of 2; start all with the same "
        "number "
        "of ranks");
  CHECK(message_of([] { (void)rendezvous({.rank = 2, .size = 2}); }) ==
        "there is no rank 2 in a world of 2");
}

TEST_CASE("rendezvous: a rank of a job that is running already does not join it") {
  const int port = free_port();
  std::shared_ptr<KeyValueStore> held;
  const auto errors = on_threads({0, 1}, [&](int rank) {
    auto store = rendezvous(at_port(port, rank, 2));
    if (rank == 0) held = std::move(store);
  });
  CHECK(errors == std::vector<std::string>(2, "no error"));
  auto again = at_port(port, 1, 2);
  again.timeout_s = 0.1;
  CHECK(has(message_of([&] { (void)rendezvous(again); }),
            "; end that start of the job, or give this one a DHP_JOB of its own"));
}

TEST_CASE("rendezvous: a second process of rank 0 is refused at once") {
  const TcpStoreServer first(at_port(free_port(), 0, 2));
  auto second = at_port(first.port(), 0, 2);
  CHECK(
      has(message_of([&] { (void)rendezvous(second); }),
          concat("another process is rank 0 of job \"job\" already, at the TCP store at 127.0.0.1:",
                 first.port(), "; give each process a rank of its own, and each start a DHP_JOB")));
  second.job = "another";
  second.timeout_s = 0.1;
  CHECK(has(message_of([&] { (void)rendezvous(second); }), "rank 1 has not"));
}

TEST_CASE("rendezvous: works for a world of one, and ten times in a row on one port") {
  const int port = free_port();
  CHECK(rendezvous(at_port(port, 0, 1))->find("arrived/0").has_value());
  const auto errors = on_threads({0, 1}, [&](int rank) {
    for (int start = 0; start < 10; ++start) {
      const auto store = rendezvous(at_port(port, rank, 2));
      leave(*store, rank, 2);
      if (rank == 0) sleep_ms(5);  // the other rank has gone on to the next start
    }
  });
  CHECK(errors == std::vector<std::string>(2, "no error"));
}

const std::string good = "0123456789abcdef";

TEST_CASE("job secret: DHP_JOB_SECRET gives the secret") {
  CHECK(job_secret(nullptr, nullptr) == "");
  CHECK(job_secret(good.c_str(), nullptr) == good);
  CHECK(has(message_of([] { (void)job_secret("", nullptr); }), "DHP_JOB_SECRET has 0 bytes"));
  CHECK(
      message_of([] { (void)job_secret("0123456789abcde", nullptr); }) ==
      "the secret of DHP_JOB_SECRET has 15 bytes; a secret has 16 to 4096: head -c 32 /dev/urandom "
      "| base64 makes one");
  CHECK(message_of([] { (void)job_secret(good.c_str(), "/there"); }) ==
        "DHP_JOB_SECRET and DHP_JOB_SECRET_FILE are both set; unset one of them");
}

TEST_CASE("job secret: DHP_JOB_SECRET_FILE must be readable by this user only") {
  const Folder place;
  const auto path = place.path + "/secret";
  const auto error = [&] { return message_of([&] { (void)job_secret(nullptr, path.c_str()); }); };
  const auto write = [&](const std::string& text, ::mode_t mode) {
    ::unlink(path.c_str());
    OpenFile(path, O_WRONLY | O_CREAT).write(text);
    CHECK(::chmod(path.c_str(), mode) == 0);
  };
  CHECK(error() == "DHP_JOB_SECRET_FILE: cannot look at " + path + ": No such file or directory");
  for (const auto mode : {0600u, 0400u})
    for (const auto* const end : {"", "\n", "\r\n"}) {
      write(good + end, mode);
      CHECK(job_secret(nullptr, path.c_str()) == good);
    }
  for (const auto mode : {0640u, 0604u, 0620u, 0610u, 0666u}) {
    write(good, mode);
    CHECK(error() == "DHP_JOB_SECRET_FILE: others may use " + path +
                         "; use chmod 600, and a new secret if others have read it");
  }
  write("short\n", 0600);
  CHECK(error() ==
        "the secret of DHP_JOB_SECRET_FILE has 5 bytes; a secret has 16 to 4096: head -c 32 "
        "/dev/urandom | base64 makes one");
  write(std::string(5000, 'x'), 0600);
  CHECK(error() == "DHP_JOB_SECRET_FILE: " + path + " has 5000 bytes; a secret has 16 to 4096");
  ::unlink(path.c_str());
  CHECK(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(error() == "DHP_JOB_SECRET_FILE: " + path + " is not a file of this user");
  CHECK(message_of([&] { (void)job_secret(nullptr, place.path.c_str()); }) ==
        "DHP_JOB_SECRET_FILE: " + place.path + " is not a file of this user");
  if (::geteuid() != 0) return;  // only root can give a file away
  write(good, 0600);
  CHECK(::chown(path.c_str(), 12345, 12345) == 0);
  CHECK(error() == "DHP_JOB_SECRET_FILE: " + path + " is not a file of this user");
}

TEST_CASE("run_process_rank: an exception of any type names its rank and reaches the others") {
  Latch latch;
  const auto run = [&] {
    dhp::detail::run_in(
        latch, 1, [] { throw 7; }, CallSite::current());
  };
  CHECK(message_of(run) == "rank 1: an exception of unknown type");
  CHECK(message_of([&] { latch.check_alive(); }) == "an exception of unknown type");
}

}  // namespace
