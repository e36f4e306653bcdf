// The watch over ranks that are processes, without a transport.
#include <dhp/comm/process_world.hpp>
#include <tests/comm/process_ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

using World = std::shared_ptr<ProcessWorld>;
World world_of(const std::shared_ptr<KeyValueStore>& store, int rank, int size,
               double timeout_s = 60, std::function<void(const std::string&)> stuck = {}) {
  return std::make_shared<ProcessWorld>(store, rank, size,
                                        ProcessWorld::Options{.timeout_s = timeout_s,
                                                              .period_s = 0.02,
                                                              .name = concat("thread ", rank),
                                                              .stuck = std::move(stuck),
                                                              .stuck_after_s = 0.1});
}
// Waits, with a deadline of its own, until the world has ended.
std::string end_of(ProcessWorld& world) {
  const auto start = std::chrono::steady_clock::now();
  while (!world.ended() && seconds_since(start) < 20) sleep_ms(1);
  return message_of([&] { world.check_alive(); });
}

TEST_CASE("process world: all finish") {
  const auto store = std::make_shared<MemoryStore>();
  const auto zero = world_of(store, 0, 2), one = world_of(store, 1, 2);
  zero->check_alive();
  std::atomic<bool> zero_done = false;
  std::thread thread([&] {
    zero->finish();
    zero_done = true;
  });
  sleep_ms(100);
  CHECK(!zero_done);  // the store is its: it stays until all have finished
  one->finish();
  thread.join();
  CHECK(zero_done);
}

TEST_CASE("process world: a failure is heard everywhere") {
  for (const int who : {0, 1}) {
    const auto store = std::make_shared<MemoryStore>();
    const World worlds[] = {world_of(store, 0, 3), world_of(store, 1, 3), world_of(store, 2, 3)};
    std::atomic<int> calls = 0;
    const auto handle = worlds[2]->on_end([&](const std::string&) { ++calls; });
    {
      const auto gone = worlds[2]->on_end([&](const std::string&) { calls += 100; });
    }
    worlds[who]->abort("out of paper");
    for (const auto& world : worlds)
      CHECK(end_of(*world) == concat("rank ", who, ": out of paper"));
    CHECK(calls == 1);
    const auto late = worlds[2]->on_end([&](const std::string&) { ++calls; });  // at once
    CHECK(calls == 2);
    CHECK(message_of([&] { worlds[1]->finish(); }) == concat("rank ", who, ": out of paper"));
  }
}

TEST_CASE("process world: a rank that is silent ends it") {
  const auto store = std::make_shared<MemoryStore>();
  const auto zero = world_of(store, 0, 2, 0.3);
  auto one = world_of(store, 1, 2, 0.3);
  sleep_ms(60);
  one.reset();  // as if it were killed: it says nothing more
  CHECK(contains(end_of(*zero), "rank 1 (thread 1) has not been heard of for 0."));
}

TEST_CASE("process world: a lost connection to a rank that is gone, and to one that is not") {
  const auto store = std::make_shared<MemoryStore>();
  const auto zero = world_of(store, 0, 3), one = world_of(store, 1, 3);
  auto two = world_of(store, 2, 3);
  sleep_ms(60);
  two.reset();
  const auto gone = message_of([&] { one->lost(2, "reset by peer"); });
  CHECK(contains(gone, "rank 2 (thread 2) is gone: rank 1 has lost its connection to it"));
  CHECK(end_of(*zero) == gone);

  const auto other = std::make_shared<MemoryStore>();
  const auto alive = world_of(other, 0, 2), witness = world_of(other, 1, 2);
  CHECK(message_of([&] { witness->lost(0, "reset by peer"); }) ==
        "rank 1 has lost its connection to rank 0 (reset by peer)");
}

TEST_CASE("process world: rank 0 is gone, and its store with it") {
  const auto store = std::make_shared<MemoryStore>();
  const auto one = world_of(store, 1, 2);
  sleep_ms(50);
  store->vanish();
  CHECK(end_of(*one) ==
        "rank 0, which watches over all in the store in memory, is gone (it does not answer); rank "
        "1 is in no call");
}

TEST_CASE("process world: rank 0 is silent, and its store stays") {
  const auto store = std::make_shared<MemoryStore>();
  auto zero = world_of(store, 0, 2, 0.3);
  const auto one = world_of(store, 1, 2, 0.3);
  sleep_ms(60);
  zero.reset();
  CHECK(contains(end_of(*one),
                 "is gone (nothing has been heard of it for 0 s); rank 1 is in no call"));
}

// Ranks that have done a few quick steps.
struct Stepping {
  std::shared_ptr<KeyValueStore> store = std::make_shared<MemoryStore>();
  std::vector<std::shared_ptr<Deadlines>> deadlines{};
  std::vector<std::shared_ptr<Ledger>> ledgers{};
  std::vector<World> worlds{};
  explicit Stepping(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      deadlines.push_back(
          std::make_shared<Deadlines>(DeadlineRules{.least_s = 1, .unlearned_s = 60, .passes = 5}));
      ledgers.push_back(std::make_shared<Ledger>());
      worlds.push_back(
          std::make_shared<ProcessWorld>(store, rank, ranks,
                                         ProcessWorld::Options{.timeout_s = 60,
                                                               .period_s = 0.02,
                                                               .name = concat("thread ", rank),
                                                               .deadlines = deadlines.back(),
                                                               .ledger = ledgers.back()}));
    }
    for (int step = 0; step < 7; ++step)
      for (const auto& each : deadlines) each->enter(Section::step);
  }
};

TEST_CASE("process world: a learned limit ends a hang soon after a few quick steps") {
  Stepping run(3);
  const auto start = std::chrono::steady_clock::now();
  LedgerEntry entry;
  entry.key = "0@0#1";
  entry.operation = entry.what = "barrier";
  entry.where = CallSite::current();
  Ledger::Call call(*run.ledgers[1], entry);
  call.waits_for(2);
  const auto message = end_of(*run.worlds[1]);
  CHECK(seconds_since(start) >= 1);
  CHECK(seconds_since(start) < 10);
  CHECK(contains(message, "rank 1 waits in barrier at process_world.cpp:"));
  CHECK(contains(message,
                 "for rank 2 (thread 2), which is alive and has called nothing yet, beyond the "
                 "limit of 1 s for a step, the least there is; --comm-timeout sets another"));
}

TEST_CASE("process world: rank 0 is silent beyond a learned limit") {
  Stepping run(2);
  sleep_ms(60);
  run.worlds[0].reset();
  CHECK(contains(end_of(*run.worlds[1]),
                 "is gone (nothing has been heard of it for 1 s, beyond the limit of 1 s for a "
                 "step, the least there is; --comm-timeout sets another); rank 1 is in no call"));
}

TEST_CASE("process world: rank 0 may be silent for as long as what it was at may take") {
  Stepping run(2);
  run.deadlines[0]->enter(Section::saving);
  sleep_ms(60);
  run.worlds[0].reset();
  sleep_ms(1500);
  CHECK(!run.worlds[1]->ended());
}

TEST_CASE("process world: waits for what another rank sets") {
  const auto store = std::make_shared<MemoryStore>();
  const auto zero = world_of(store, 0, 2, 0.5), one = world_of(store, 1, 2, 0.5);
  std::thread setter([&] {
    sleep_ms(30);
    store->set("id", "7");
  });
  CHECK(zero->get("id") == "7");
  setter.join();
  zero->abort("enough");
  CHECK(message_of([&] { (void)one->get("never"); }) == "rank 0: enough");
}

TEST_CASE("process world: a rank that does not notice the end") {
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<int> stuck = 0;
  const auto say = [&](const std::string& message) {
    stuck += message == "rank 0: enough" ? 1 : 100;
  };
  {
    const auto zero = world_of(store, 0, 2), one = world_of(store, 1, 2, 60, say);
    sleep_ms(50);
    zero->abort("enough");
    sleep_ms(500);
    CHECK(stuck == 1);
  }
  const auto again = std::make_shared<MemoryStore>();
  const auto zero = world_of(again, 0, 2), one = world_of(again, 1, 2, 60, say);
  sleep_ms(50);
  zero->abort("enough");
  CHECK(end_of(*one) == "rank 0: enough");
  sleep_ms(300);
  CHECK(stuck == 1);  // this one has noticed
}

}  // namespace
