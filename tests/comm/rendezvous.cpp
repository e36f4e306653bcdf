// Ranks that meet: all of them, or each is told who is missing.
#include <dhp/comm/rendezvous.hpp>
#include <tests/comm/folder.hpp>
#include <tests/comm/stores.hpp>

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

TEST_CASE("rendezvous: ranks that start in any order have one store, until all have left") {
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
    if (!leave(*store, rank, 4, 20)) ++wrong;
  });
  for (const auto& text : said) CHECK(text == "no error");
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
        status = pids.size() == size && leave(*store, rank, size, 20) ? 0 : 2;
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
  std::shared_ptr<Store> held;
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
  std::shared_ptr<Store> held;
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
  CHECK(leave(*meet(at_port(port, 0, 1)), 0, 1, 20));
  bool good = true;
  for (int start = 0; good && start < 10; ++start) {
    const auto said = on_threads({0, 1}, [&](int rank) {
      const auto store = meet(at_port(port, rank, 2));
      (void)leave(*store, rank, 2, 20);
    });
    good = said == std::vector<std::string>(2, "no error");
    CHECK(good);
  }
}

TEST_CASE("rendezvous: rank 0 does not wait for ever for ranks that have ended without leaving") {
  const int port = free_port();
  std::atomic<bool> all = true;
  (void)on_threads({0, 1}, [&](int rank) {
    const auto store = meet(at_port(port, rank, 2));
    if (rank == 0) all = leave(*store, 0, 2, 0.1);
  });
  CHECK(!all);
}

TEST_CASE("rendezvous: strangers neither join nor stop the job") {
  const int port = free_port();
  Notes notes;
  std::vector<std::unique_ptr<RawConnection>> silent;
  std::atomic<bool> over = false;
  const auto said = on_threads({0, 1, 2, 9}, [&](int rank) {
    auto options = at_port(port, rank, 3);
    options.log = notes.log();
    if (rank == 9) {  // someone who is there before the others
      TcpStoreOptions wrong{.port = port,
                            .ports = 1,
                            .rank = 1,
                            .job = "job",
                            .secret = "no secret of this job",
                            .connect_s = 20,
                            .refused_s = 0};
      const auto refused = message_of([&] { TcpStore none(wrong); });
      for (int i = 0; i < 64; ++i) silent.push_back(std::make_unique<RawConnection>(port));
      (void)RawConnection(port).send(nonce(600));
      over = true;
      fail(refused);
    }
    for (int waited = 0; rank != 0 && !over && waited < 20000; ++waited) sleep_ms(1);
    (void)leave(*meet(options), rank, 3, 20);
  });
  for (std::size_t at = 0; at < 3; ++at) CHECK(said[at] == "no error");
  CHECK(contains(said[3], "refuses rank 1: its secret is not the job's"));
  CHECK(contains(notes.all(), "has not the secret of the job"));
}

RendezvousOptions in_folder(const Folder& place, int rank, int size) {
  return {.rank = rank, .size = size, .folder = place.path, .secret = secret, .timeout_s = 20};
}

TEST_CASE("rendezvous: ranks meet in a folder, start after start, and leave it empty") {
  const Folder place;
  std::atomic<int> wrong = 0;
  bool good = true;
  for (int start = 0; good && start < 5; ++start) {
    const auto said = on_threads({0, 1, 2}, [&](int rank) {
      sleep_ms(rank == 0 ? 20 : rank == 2 ? 40 : 0);
      const auto store = meet(in_folder(place, rank, 3));
      if (store->list("arrived/").size() != 3) ++wrong;
      if (store->find("start")) ++wrong;
      if (!store->find("arrived/2")) ++wrong;
      if (rank == 1) store->set("number", concat(start));
      if (store->get("number", 20) != concat(start)) ++wrong;
      if (!leave(*store, rank, 3, 20)) ++wrong;
    });
    good = said == std::vector<std::string>(3, "no error");
    CHECK(good);
  }
  CHECK(wrong == 0);
  CHECK(place.files().empty());
}

TEST_CASE("rendezvous: what an earlier start has left in the folder is not joined") {
  const Folder place;
  {  // A start that was killed: rank 0's answers and keys, and a rank that nobody answered.
    FileStore lobby(place.path, "lobby of job", secret);
    lobby.set("hello/aa", "1");
    lobby.set("answer/aa", "old");
    lobby.set("hello/bb", "2");
    FileStore old(place.path, "start old of job", secret);
    for (int rank = 0; rank < 3; ++rank) old.set(concat("arrived/", rank), "ghost 1");
    old.set("outcome", "all of 3");
    old.set("number", "old");
  }
  const auto said = on_threads({0, 1}, [&](int rank) {
    auto options = in_folder(place, rank, 3);
    if (rank == 0) options.timeout_s = 0.5;
    (void)meet(options);
  });
  for (const auto& text : said)
    CHECK(
        contains(text, concat("after 0.5 s ranks 0 and 1 have arrived at the store in the folder ",
                              place.path, ", rank 2 has not; did all start")));
  const auto again = on_threads({0, 1, 2}, [&](int rank) {
    const auto store = meet(in_folder(place, rank, 3));
    check(!store->find("number"), "a key of the past");
    check(!contains(store->get("arrived/1", 20), "ghost"), "a rank of the past");
    (void)leave(*store, rank, 3, 20);
  });
  CHECK(again == std::vector<std::string>(3, "no error"));
}

TEST_CASE("rendezvous: two jobs in one folder, and one without the secret") {
  const Folder place;
  const auto said = on_threads({0, 1, 10, 11, 21}, [&](int number) {
    auto options = in_folder(place, number % 10, 2);
    if (number / 10 == 1) options.job = "other";
    if (number / 10 == 2) {
      options.secret = "no secret of this job";
      options.timeout_s = 0.2;
    } else if (number % 10 == 1) {
      sleep_ms(250);
    }
    const auto store = meet(options);
    store->set("mine", options.job);
    check(store->find("mine") == options.job, "another job's");
    (void)leave(*store, options.rank, 2, 20);
  });
  for (std::size_t at = 0; at < 4; ++at) CHECK(said[at] == "no error");
  CHECK(contains(said[4], "rank 1 has found no rank 0 of job \"job\" in the folder "));
}

}  // namespace
