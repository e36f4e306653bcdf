// Ranks that meet: all of them, or each is told who is missing. Secrets from the environment are taken, or refused in a
// sentence that does not show them.
#include <dhp/comm/meet/rendezvous.hpp>
#include <tests/comm/folder.hpp>
#include <tests/comm/meet/stores.hpp>

namespace {

using namespace tests;

RendezvousOptions at_port(int port, int rank, int size) {
  return {.rank = rank, .size = size, .port = port, .secret = secret, .timeout_s = 20};
}

// body(rank) on a thread each; what each threw, or "no error".
template <class Body>
std::vector<std::string> on_threads(const std::vector<int>& ranks, Body body) {
  std::vector<std::string> said(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t at = 0; at < ranks.size(); ++at)
    threads.emplace_back([&, at] { said[at] = message_of([&] { body(ranks[at]); }); });
  for (auto& thread : threads) thread.join();
  return said;
}
// Rank 0 keeps its store until the others have no use for it any more.
void leave(KeyValueStore& store, int rank, int size) {
  store.set(concat("left/", rank), "");
  if (rank == 0) check(wait_for_keys(store, "left/", size, 20), "a rank has not left");
}

TEST_CASE("rendezvous: ranks that start in any order have one store") {
  const int port = free_port();
  std::atomic<int> wrong = 0;
  const auto said = on_threads({0, 1, 2, 3}, [&](int rank) {
    sleep_ms(rank == 0 ? 40 : rank == 3 ? 80 : 0);
    const auto store = meet(at_port(port, rank, 4));
    for (int other = 0; other < 4; ++other)
      if (!contains(store->find(concat("arrived/", other)).value_or(""), concat(" ", ::getpid())))
        ++wrong;
    if (rank == 2) store->set("hello", "from 2");
    if (rank == 3) sleep_ms(60);
    if (store->get("hello", 20) != "from 2") ++wrong;
    leave(*store, rank, 4);
  });
  CHECK(said == std::vector<std::string>(4, "no error"));
  CHECK(wrong == 0);
}

TEST_CASE("rendezvous: processes meet") {
  const int port = free_port();
  constexpr int size = 4;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const auto child = ::fork();
    if (child == 0) {  // no doctest in here
      int status = 1;
      try {
        const auto store = meet(at_port(port, rank, size));
        store->set(concat("pid/", rank), concat(::getpid()));
        std::set<std::string> pids;
        for (int other = 0; other < size; ++other)
          pids.insert(store->get(concat("pid/", other), 20));
        leave(*store, rank, size);
        status = pids.size() == size ? 0 : 2;
      } catch (...) {}
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const auto child : children) {
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

TEST_CASE("rendezvous: who has not come is named on all ranks") {
  const int port = free_port();
  const auto said = on_threads({0, 1, 3}, [&](int rank) {
    auto options = at_port(port, rank, 5);
    if (rank == 0) options.timeout_s = 0.5;
    (void)meet(options);
  });
  for (const auto& text : said)
    CHECK(text ==
          concat("after 0.5 s ranks 0, 1 and 3 have arrived at the TCP store at 127.0.0.1:", port,
                 ", ranks 2 and 4 have not; did all start, with the same DHP_JOB, and "
                 "can they reach it?"));
  auto late = at_port(port, 4, 5);
  late.timeout_s = 0.2;
  CHECK(contains(message_of([&] { (void)meet(late); }),
                 "rank 4 has found no store of job \"job\" at 127.0.0.1:"));
}

TEST_CASE("rendezvous: ranks that do not agree on their number are told so") {
  const int port = free_port();
  std::shared_ptr<KeyValueStore> held;
  const auto said = on_threads({0, 1}, [&](int rank) {
    auto store = meet(at_port(port, rank, 2 + rank));
    if (rank == 0) held = std::move(store);
  });
  CHECK(said[0] == "no error");
  CHECK(said[1] ==
        "rank 1 was started as one of 3 ranks, but rank 0 as one of 2; start all with the same "
        "number "
        "of ranks");
  CHECK(message_of([] { (void)meet({.rank = 2, .size = 2}); }) ==
        "there is no rank 2 in a world of 2");
}

TEST_CASE("rendezvous: a rank of a job that is running already does not join it") {
  const int port = free_port();
  std::shared_ptr<KeyValueStore> held;
  const auto said = on_threads({0, 1}, [&](int rank) {
    auto store = meet(at_port(port, rank, 2));
    if (rank == 0) held = std::move(store);
  });
  CHECK(said == std::vector<std::string>(2, "no error"));
  CHECK(contains(message_of([&] { (void)meet(at_port(port, 1, 2)); }),
                 "; end that start of the job, or give this one a DHP_JOB of its own"));
}

TEST_CASE("rendezvous: a world of one, and ten starts in a row") {
  const int port = free_port();
  CHECK(meet(at_port(port, 0, 1))->find("arrived/0").has_value());
  bool good = true;
  for (int start = 0; good && start < 10; ++start) {
    const auto said = on_threads({0, 1}, [&](int rank) {
      const auto store = meet(at_port(port, rank, 2));
      leave(*store, rank, 2);
    });
    good = said == std::vector<std::string>(2, "no error");
    CHECK(good);
  }
}

TEST_CASE("rendezvous: two jobs at one port number") {
  const int port = free_port();
  const auto said = on_threads({0, 1, 10, 11}, [&](int number) {
    auto options = at_port(port, number % 10, 2);
    if (number >= 10) options.job = "other";
    const auto store = meet(options);
    store->set(concat("mine/", number % 10), options.job);
    for (int rank = 0; rank < 2; ++rank)
      check(store->get(concat("mine/", rank), 20) == options.job, "another job's");
    leave(*store, options.rank, 2);
  });
  CHECK(said == std::vector<std::string>(4, "no error"));
}

TEST_CASE("rendezvous: unauthenticated clients neither join nor stop the job") {
  const int port = free_port();
  Notes notes;
  std::vector<std::unique_ptr<RawConnection>> silent;
  std::atomic<bool> over = false;
  const auto said = on_threads({0, 1, 2, 9}, [&](int rank) {
    auto options = at_port(port, rank, 3);
    options.log = notes.log();
    if (rank == 9) {  // someone who is there before the others
      const RendezvousOptions wrong{.rank = 1,
                                    .port = port,
                                    .secret = "no secret of this job",
                                    .timeout_s = 20,
                                    .refused_s = 0,
                                    .ports = 1};
      const auto refused = message_of([&] { TcpStore none(wrong); });
      for (int i = 0; i < 64; ++i) silent.push_back(std::make_unique<RawConnection>(port));
      (void)RawConnection(port).send(nonce(600));
      over = true;
      fail(refused);
    }
    for (int waited = 0; rank != 0 && !over && waited < 20000; ++waited) sleep_ms(1);
    leave(*meet(options), rank, 3);
  });
  for (std::size_t at = 0; at < 3; ++at) CHECK(said[at] == "no error");
  CHECK(contains(said[3], "refuses rank 1: its secret is not the job's"));
  CHECK(contains(notes.all(), "has not the secret of the job"));
}

const std::string good = "0123456789abcdef";

TEST_CASE("job secret: from the variable") {
  CHECK(job_secret(nullptr, nullptr) == "");
  CHECK(job_secret(good.c_str(), nullptr) == good);
  CHECK(message_of([] { (void)job_secret("", nullptr); }) ==
        "the secret of DHP_JOB_SECRET has 0 bytes; a secret has 16 to 4096: head -c 32 "
        "/dev/urandom | "
        "base64 makes one");
  CHECK(
      message_of([] { (void)job_secret("0123456789abcde", nullptr); }) ==
      "the secret of DHP_JOB_SECRET has 15 bytes; a secret has 16 to 4096: head -c 32 /dev/urandom "
      "| base64 makes one");
  CHECK(message_of([] { (void)job_secret(good.c_str(), "/there"); }) ==
        "DHP_JOB_SECRET and DHP_JOB_SECRET_FILE are both set; unset one of them");
}

TEST_CASE("job secret: from a file of this user alone") {
  const Folder place;
  const auto path = place.path + "/secret";
  const auto said = [&] { return message_of([&] { (void)job_secret(nullptr, path.c_str()); }); };
  const auto write = [&](const std::string& text, ::mode_t mode) {
    ::unlink(path.c_str());
    OpenFile(path, O_WRONLY | O_CREAT).write(text);
    CHECK(::chmod(path.c_str(), mode) == 0);
  };
  CHECK(said() == "DHP_JOB_SECRET_FILE: cannot look at " + path + ": No such file or directory");
  for (const auto mode : {0600u, 0400u})
    for (const auto* const end : {"", "\n", "\r\n"}) {
      write(good + end, mode);
      CHECK(job_secret(nullptr, path.c_str()) == good);
    }
  for (const auto mode : {0640u, 0604u, 0620u, 0610u, 0666u}) {
    write(good, mode);
    CHECK(said() == "DHP_JOB_SECRET_FILE: others may use " + path +
                        "; chmod 600 makes it yours alone, but who has read it knows the secret");
  }
  write("short\n", 0600);
  CHECK(said() ==
        "the secret of DHP_JOB_SECRET_FILE has 5 bytes; a secret has 16 to 4096: head -c 32 "
        "/dev/urandom | base64 makes one");
  write(std::string(5000, 'x'), 0600);
  CHECK(said() == "DHP_JOB_SECRET_FILE: " + path + " has 5000 bytes; a secret has 16 to 4096");
  ::unlink(path.c_str());
  CHECK(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(said() == "DHP_JOB_SECRET_FILE: " + path + " is not a file of this user");
  CHECK(message_of([&] { (void)job_secret(nullptr, place.path.c_str()); }) ==
        "DHP_JOB_SECRET_FILE: " + place.path + " is not a file of this user");
  if (::geteuid() != 0) return;  // only root can give a file away
  write(good, 0600);
  CHECK(::chown(path.c_str(), 12345, 12345) == 0);
  CHECK(said() == "DHP_JOB_SECRET_FILE: " + path + " is not a file of this user");
}

}  // namespace
