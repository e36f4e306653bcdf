// The watchdogs of process ranks, without an engine, and of thread ranks.
#include <dhp/comm/watch/process_watchdog.hpp>
#include <dhp/comm/watch/watchdog.hpp>
#include <tests/comm/process_ranks.hpp>

namespace {

using Clock = std::chrono::steady_clock;
using Worlds = std::vector<std::shared_ptr<ProcessWatchdog>>;

// The watchdogs of process ranks that share one store.
Worlds worlds_of(const std::shared_ptr<KeyValueStore>& store, int ranks,
                 WatchOptions options = {.timeout_s = 60}) {
  options.period_s = 0.02;
  Worlds worlds;
  for (int rank = 0; rank < ranks; ++rank) worlds.push_back(world_of(store, rank, ranks, options));
  return worlds;
}
bool soon(const std::function<bool()>& ready) { return dhp::detail::poll_until(ready, hang_s); }
std::string end_of(Watchdog& world) {
  (void)soon([&] { return world.ended(); });
  return message_of([&] { world.check_alive(); });
}

TEST_CASE("watchdog: rank 0 stays until all ranks have finished") {
  const auto store = std::make_shared<MemoryStore>();
  const auto worlds = worlds_of(store, 2);
  worlds[0]->check_alive();
  std::atomic<bool> zero_done = false;
  std::thread thread([&] {
    worlds[0]->finish(0);
    zero_done = true;
  });
  sleep_ms(100);
  CHECK(!zero_done);  // rank 0 holds the store, so it stays until all have finished
  worlds[1]->finish(1);
  thread.join();
  CHECK(zero_done);
}

TEST_CASE("watchdog: a rank that finishes and leaves during a check is not lost") {
  for (const int leaver : {0, 1}) {
    CAPTURE(leaver);
    const auto store = std::make_shared<MemoryStore>();
    std::atomic<bool> ready = false, left = false;
    Worlds worlds;
    // Rank 0 is the last to finish, so rank 1 looks at it once more.
    const auto comes = [&](const std::string& key) {
      if (leaver == 1) return key == "state/";
      return key == "state/0" &&
             dhp::detail::RankState::parsed(store->find("state/1").value())->finished;
    };
    store->after_read = [&](const std::string& key) {
      if (!ready || !comes(key) || left.exchange(true)) return;
      worlds[leaver]->finish(leaver);
      store->set(concat("left/", leaver), "");
    };
    worlds = worlds_of(store, 2);
    ready = true;
    CHECK_NOTHROW(worlds[1 - leaver]->finish(1 - leaver));
    CHECK(soon([&] { return left.load(); }));
    worlds.clear();
  }
}

TEST_CASE("watchdog: calls of an earlier world are not compared with those of this one") {
  const std::vector<std::shared_ptr<FlightRecorder>> recorders{std::make_shared<FlightRecorder>(),
                                                               std::make_shared<FlightRecorder>()};
  const auto call = [&](int rank, CallKind kind, std::int64_t count) {
    return dhp::detail::GroupRecorder(recorders[static_cast<std::size_t>(rank)], rank, 2)
        .begin({.kind = kind, .count = count, .other = 1 - rank});
  };
  (void)call(0, CallKind::send, 3);  // is over at once
  const auto store = std::make_shared<MemoryStore>();
  Worlds worlds;
  for (int rank = 0; rank < 2; ++rank)
    worlds.push_back(world_of(store, rank, 2,
                              {.timeout_s = 60, .recorders = {recorders[rank]}, .period_s = 0.02}));
  {
    const auto receives = call(1, CallKind::recv, 5);
    sleep_ms(800);
    CHECK_FALSE(worlds[0]->ended());
  }
  (void)call(0, CallKind::send, 3);
  const auto receives = call(1, CallKind::recv, 5);
  CHECK(has(end_of(*worlds[1]), "ranks do not agree"));
}

TEST_CASE("watchdog: a failure reaches every rank") {
  for (const int who : {0, 1}) {
    const auto store = std::make_shared<MemoryStore>();
    const auto worlds = worlds_of(store, 3);
    worlds[static_cast<std::size_t>(who)]->abort("out of paper");
    for (const auto& world : worlds)
      CHECK(end_of(*world) == concat("rank ", who, ": out of paper"));
    CHECK(message_of([&] { worlds[1]->finish(1); }) == concat("rank ", who, ": out of paper"));
  }
}

TEST_CASE("watchdog: a silent rank ends the world") {
  const auto store = std::make_shared<MemoryStore>();
  store->set("state/1",
             dhp::detail::RankState{.beat = 1, .name = "thread 1", .limit = {0.3}}.written());
  const auto zero = world_of(store, 0, 2, {.timeout_s = 0.3});
  CHECK(has(end_of(*zero), "rank 1 (thread 1) has not been heard of for "));
}

// Returns whether rank 1 reports its lost connection with `expected` and, if all_hear, rank 0 gets the same error.
// make() returns the worlds of both. Rank 1 waits two seconds for the cause. A busy machine may take longer, so the
// check is repeated.
bool says_of_lost(int peer, const std::string& expected,
                  const std::function<Worlds(const std::shared_ptr<KeyValueStore>&)>& make,
                  bool all_hear = true) {
  return dhp::detail::poll_until(
      [&] {
        const auto worlds = make(std::make_shared<MemoryStore>());
        const auto error = message_of([&] { worlds[1]->lost(peer, "reset by peer"); });
        return has(error, expected) && (!all_hear || end_of(*worlds[0]) == error);
      },
      hang_s);
}

TEST_CASE("watchdog: a lost connection names the rank, whether it is gone or alive") {
  const auto gone = [](const auto& store) {
    store->set("state/2", dhp::detail::RankState{.beat = 1, .name = "thread 2"}.written());
    return Worlds{world_of(store, 0, 3), world_of(store, 1, 3)};
  };
  CHECK(says_of_lost(2, "rank 2 (thread 2) is gone: rank 1 has lost its connection to it", gone));
  const auto alive = [](const auto& store) { return worlds_of(store, 2); };
  CHECK(says_of_lost(0, "rank 1 has lost its connection to rank 0 (reset by peer)", alive, false));
}

TEST_CASE("watchdog: rank 0 is lost together with its store") {
  const auto store = std::make_shared<MemoryStore>();
  const auto worlds = worlds_of(store, 2);
  sleep_ms(50);
  store->vanish();
  CHECK(end_of(*worlds[1]) ==
        "rank 0, which watches over all in the store in memory, is gone (it does not answer); rank "
        "1 is in no call");
}

// The watchdogs of ranks that have learned a limit of 3 s from a few quick steps.
struct Stepping {
  std::shared_ptr<KeyValueStore> store = std::make_shared<MemoryStore>();
  std::vector<std::shared_ptr<Deadlines>> deadlines{};
  Worlds worlds{};
  explicit Stepping(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      deadlines.push_back(std::make_shared<Deadlines>(
          dhp::detail::DeadlineRules{.min_s = 3, .unlearned_s = hang_s, .passes = 5}));
      worlds.push_back(
          world_of(store, rank, ranks, {.deadlines = deadlines.back(), .period_s = 0.02}));
    }
    for (int step = 0; step < 7; ++step)
      for (const auto& each : deadlines) each->enter(Section::step);
  }
};

TEST_CASE("watchdog: rank 0 is lost while its store stays") {
  const auto start = Clock::now();
  CHECK(says_of_lost(0,
                     "rank 0, which watches over all in the store in memory, is gone (the "
                     "connection to it has broken",
                     [](const auto& store) {
                       store->set("state/0", dhp::detail::RankState{.beat = 1}.written());
                       return Worlds{world_of(store, 2, 3), world_of(store, 1, 3)};
                     }));
  CHECK(seconds_since(start) >= 1);
}

TEST_CASE("watchdog: a learned limit ends a hang soon after a few quick steps") {
  Stepping run(3);
  const auto start = Clock::now();
  dhp::detail::GroupRecorder group(run.worlds[1]->recorder(1), 1, 3);
  const auto call =
      group.begin({.kind = CallKind::recv, .count = 3, .other = 2, .where = CallSite::current()});
  const auto message = end_of(*run.worlds[1]);
  CHECK(seconds_since(start) >= 3);
  CHECK(seconds_since(start) < hang_s);
  CHECK(has(message, "rank 1 waits in recv of a message of 3 f32 at watchdog.cpp:"));
  CHECK(has(message,
            "for rank 2 (thread 2), which is alive and has called nothing yet, beyond the "
            "limit of 3 s for a step, the minimum; a fixed limit can be given"));
}

TEST_CASE("watchdog: rank 0 is lost after silence beyond a learned limit") {
  Stepping run(2);
  sleep_ms(60);
  run.worlds[0].reset();
  const auto error = end_of(*run.worlds[1]);
  CHECK(has(error, "is gone (nothing has been heard of it for "));
  CHECK(has(error,
            " s, beyond the limit of 3 s for a step, the minimum; a fixed limit "
            "can be given instead); rank 1 is in no call"));
}

TEST_CASE("watchdog: rank 0 may be silent up to the limit of its own section") {
  Stepping run(2);
  run.deadlines[0]->enter(Section::saving);
  sleep_ms(60);
  run.worlds[0].reset();
  sleep_ms(3500);
  CHECK(!run.worlds[1]->ended());
}

TEST_CASE("watchdog: get() waits until another rank sets the key") {
  const auto store = std::make_shared<MemoryStore>();
  const auto worlds = worlds_of(store, 2);
  std::thread setter([&] {
    sleep_ms(30);
    store->set("id", "7");
  });
  CHECK(worlds[0]->get("id") == "7");
  setter.join();
  worlds[0]->abort("enough");
  CHECK(message_of([&] { (void)worlds[1]->get("never"); }) == "rank 0: enough");
}

TEST_CASE("watchdog: a rank that ignores the end is reported as stuck, once") {
  std::atomic<int> stuck = 0;
  WatchOptions options{
      .timeout_s = 60,
      .stuck = [&](const std::string& error) { stuck += error == "rank 0: enough" ? 1 : 100; },
      .stuck_after_s = 0.1};
  {
    const auto worlds = worlds_of(std::make_shared<MemoryStore>(), 2, options);
    sleep_ms(50);
    worlds[0]->abort("enough");
    CHECK(soon([&] { return stuck == 1; }));
    sleep_ms(200);
    CHECK(stuck == 1);
  }
  options.stuck_after_s = 2.5;
  const auto worlds = worlds_of(std::make_shared<MemoryStore>(), 2, options);
  sleep_ms(50);
  worlds[0]->abort("enough");
  CHECK(end_of(*worlds[1]) == "rank 0: enough");
  sleep_ms(2800);
  CHECK(stuck == 1);  // rank 1 has noticed the end
}

// A device's communicator, reduced to the members that a watchdog uses.
struct Fake final : Watchdog::Channel {
  std::string error() override {
    ++looks;
    return *broken.load();
  }
  void end() noexcept override {
    for (const auto& world : worlds) alive += world && !world->ended();
    // Waits until its neighbor ends, too: a device frees memory only when all its kernels have ended.
    ended = true;
    while (neighbor != nullptr && !neighbor->ended) sleep_ms(1);
    ++ends;
  }
  const std::string none;
  std::atomic<const std::string*> broken = &none;
  std::atomic<int> looks = 0;
  std::atomic<int> ends = 0;
  std::atomic<bool> ended = false;
  Fake* neighbor = nullptr;
  Worlds worlds{};
  std::atomic<int> alive = 0;  // number of the worlds that had not ended when it ended
};

TEST_CASE("watchdog: a broken channel ends all channels together, once") {
  const std::string cut = "the cable is cut";
  const auto first = std::make_shared<Fake>(), second = std::make_shared<Fake>();
  const auto gone = std::make_shared<Fake>();
  first->neighbor = second.get();
  second->neighbor = first.get();
  {
    Watchdog world(2, {.period_s = 0.001});
    for (const auto& channel : {first, second, gone}) world.watch(channel);
    world.unwatch(*gone);
    CHECK(soon([&] { return first->looks > 1 && second->looks > 1; }));
    CHECK(!world.ended());
    second->broken = &cut;
    CHECK(end_of(world) == cut);
    CHECK(message_of([&] { world.watch(std::make_shared<Fake>()); }) == cut);
    world.abort("too late");
    CHECK(end_of(world) == cut);
  }
  CHECK(first->ends == 1);
  CHECK(second->ends == 1);
  CHECK(gone->ends == 0);
}

TEST_CASE(
    "watchdog: a broken channel ends all processes, whose channels end when all ranks know or are "
    "silent") {
  const std::string cut = "the cable is cut";
  for (const bool silent : {false, true})
    for (const std::size_t who : {0, 1}) {
      CAPTURE(who);
      const auto store = std::make_shared<MemoryStore>();
      Worlds worlds;
      for (int rank = 0; rank < 3; ++rank)
        worlds.push_back(
            std::make_shared<ProcessWatchdog>(store, rank, 3, WatchOptions{.timeout_s = 60}));
      sleep_ms(50);
      if (silent) worlds[2].reset();
      const auto channel = std::make_shared<Fake>();
      channel->worlds = worlds;
      worlds[who]->watch(channel);
      channel->broken = &cut;
      CHECK(soon([&] { return channel->ended.load(); }));
      CHECK(channel->alive == 0);
      channel->worlds.clear();
      for (const auto& world : worlds)
        if (world) CHECK(has(end_of(*world), cut));
    }
}

TEST_CASE("watchdog: leave() ends the own channels only, and abandons one that does not end") {
  const auto store = std::make_shared<MemoryStore>();
  const auto worlds = worlds_of(store, 2);
  const auto channel = std::make_shared<Fake>();
  worlds[1]->watch(channel);
  store->vanish();  // like the store of an ended generation
  worlds[1]->leave();
  CHECK(worlds[1]->wait_for_channels());
  CHECK(channel->ended);
  CHECK_THROWS_AS(worlds[1]->check_alive(), Aborted);
  const auto never = std::make_shared<Fake>();
  Fake neighbor;
  never->neighbor = &neighbor;
  {
    Watchdog slow(2, {.end_limit_s = 0.05});
    slow.watch(never);
    slow.leave();
    CHECK_FALSE(slow.wait_for_channels());
  }
  neighbor.ended = true;
  CHECK(soon([&] { return never->ends == 1; }));
}

TEST_CASE("watchdog: wait_until() ends by its condition, the world's end or the time limit") {
  Watchdog patient_world(2, {.timeout_s = 60});
  int looks = 0;
  patient_world.wait_until([&] { return ++looks > 220; }, [] { return std::string("never"); });
  CHECK(!patient_world.ended());
  Watchdog world(2, {.timeout_s = 1});
  const auto start = Clock::now();
  const auto late = [] { return std::string("rank 2 waits"); };
  const auto forever = [] { return false; };
  // Thread ranks send no reports that could be late.
  const auto error = message_of([&] { world.wait_until(forever, late); });
  CHECK(error == "rank 2 waits, beyond the time limit of 1 s; a larger limit waits longer");
  CHECK(seconds_since(start) >= 1);
  CHECK(world.ended());

  Watchdog other(2, {.timeout_s = 0});
  std::thread elsewhere([&] {
    sleep_ms(20);
    other.abort("rank 1: no more");
  });
  CHECK(message_of([&] { other.wait_until(forever, late); }) == "rank 1: no more");
  elsewhere.join();
  Watchdog learned(
      2, {.deadlines = std::make_shared<Deadlines>(dhp::detail::DeadlineRules{.unlearned_s = 1})});
  CHECK(has(message_of([&] { learned.wait_until(forever, late); }),
            "rank 2 waits, beyond the limit of 1 s for the start"));
  CHECK(has(message_of([] { Watchdog(2, {.timeout_s = -1}); }), "or 0 for none, got -1"));
  CHECK(message_of([] { Watchdog(0, {}); }) == "a world has at least 1 rank, got 0");
}

// The error of run_ranks when rank 1 runs `odd`, and the other thread ranks run `usual`.
template <class Usual, class Odd>
std::string outcome(int ranks, double timeout_s, Usual usual, Odd odd) {
  return message_of([&] {
    run_ranks(ranks,
              [&](Comm<Cpu> world) {
                Cpu dev;
                auto x = tensor_of<float>(dev, {1, 2, 3});
                if (world.rank() == 1) odd(world, dev, x);
                else usual(world, dev, x);
              },
              {.timeout_s = timeout_s});
  });
}
const auto barrier = [](Comm<Cpu>& world, Cpu&, Tensor<Cpu>&) { world.barrier(); };

TEST_CASE("watchdog: a missing thread is named at the time limit, with its place") {
  std::atomic<int> line = 0;
  std::atomic<bool> over = false;
  const auto start = Clock::now();
  const auto missing = outcome(
      3, 1,
      [&](auto& world, auto& dev, auto& x) {
        over = message_of([&] { line = __LINE__, world.all_reduce(dev, x.mut()).wait(); }) !=
               "no error";
        world.barrier();  // throws the same error
      },
      [&](auto&, auto&, auto&) { (void)soon([&] { return over.load(); }); });
  CHECK(seconds_since(start) >= 1);
  CHECK(has(missing, concat("waits in all_reduce of 3 f32 (sum) at watchdog.cpp:", line.load(),
                            " for rank 1, which is alive and has called nothing yet")));
  CHECK(has(missing, "beyond the time limit of 1 s; a larger limit"));
  int recv = 0;
  const auto elsewhere = outcome(2, 0.2, barrier, [&](auto& world, auto& dev, auto& x) {
    recv = __LINE__, world.recv(dev, x.mut(), 0);
  });
  // Either rank may be named as late.
  CHECK(has(elsewhere, "in barrier at watchdog.cpp:"));
  CHECK(has(elsewhere, concat("in recv of a message of 3 f32 at watchdog.cpp:", recv)));
}

TEST_CASE("watchdog: for threads, the limit counts for each wait, not for the run") {
  run_ranks(2,
            [](Comm<Cpu> world) {
              for (int round = 0; round < 8; ++round) {
                if (world.rank() == round % 2) sleep_ms(400);
                world.barrier();
              }
            },
            {.timeout_s = 3});
}

}  // namespace
