// Channels that need no device: who is in trouble ends all, and no wait is for ever.
#include <dhp/comm/watched_world.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

#include <functional>

namespace {

using namespace tests;
using Clock = std::chrono::steady_clock;

struct Fake final : WatchedWorld::Channel {
  std::string trouble() override {
    ++looks;
    return *broken.load();
  }
  void end() noexcept override {
    // Ends only when its neighbour has, as memory is freed only when a device has nothing to do.
    ended = true;
    while (neighbour != nullptr && !neighbour->ended) sleep_ms(1);
    ++ends;
  }
  const std::string none;
  std::atomic<const std::string*> broken = &none;
  std::atomic<int> looks = 0;
  std::atomic<int> ends = 0;
  std::atomic<bool> ended = false;
  Fake* neighbour = nullptr;
};

bool soon(const std::function<bool()>& ready) {
  const auto start = Clock::now();
  while (!ready() && seconds_since(start) < 20) sleep_ms(1);
  return ready();
}

TEST_CASE("watched world: trouble of one channel ends all of them, once, at the same time") {
  const std::string cut = "the cable is cut";
  const auto first = std::make_shared<Fake>(), second = std::make_shared<Fake>();
  first->neighbour = second.get();
  second->neighbour = first.get();
  {
    WatchedWorld world({.period_s = 0.001});
    world.add(first);
    world.add(second);
    world.check_alive();
    CHECK(soon([&] { return first->looks > 1 && second->looks > 1; }));
    CHECK(!world.aborted());
    second->broken = &cut;
    CHECK(soon([&] { return world.aborted(); }));
    CHECK(message_of([&] { world.check_alive(); }) == cut);
    CHECK(message_of([&] { world.add(std::make_shared<Fake>()); }) == cut);
    world.abort("too late");
    CHECK(message_of([&] { world.check_alive(); }) == cut);
  }
  CHECK(first->ends == 1);
  CHECK(second->ends == 1);
}

TEST_CASE("watched world: who has left is not looked at, and not ended") {
  const auto gone = std::make_shared<Fake>();
  {
    WatchedWorld world({.period_s = 0.001});
    world.add(gone);
    world.remove(*gone);
    world.abort("stop");
  }
  CHECK(gone->ends == 0);
}

TEST_CASE("watched world: a channel that does not end is left behind") {
  const auto stuck = std::make_shared<Fake>();
  Fake never;
  stuck->neighbour = &never;
  const auto start = Clock::now();
  {
    WatchedWorld world({.end_limit_s = 0.05});
    world.add(stuck);
    world.abort("stop");
  }
  CHECK(seconds_since(start) < 20);
  never.ended = true;  // lets the thread go
  CHECK(soon([&] { return stuck->ends == 1; }));
}

TEST_CASE(
    "watched world: the host's waits end with what they wait for, the world, or the time limit") {
  WatchedWorld world({.timeout_s = 1});  // the looks take a few milliseconds of an idle machine
  int looks = 0;
  world.wait_until([&] { return ++looks > 220; }, [] { return std::string("never"); });
  CHECK(!world.aborted());
  const auto start = Clock::now();
  CHECK(message_of([&] {
          world.wait_until([] { return false; }, [] { return std::string("rank 2 waits"); });
        }) == "rank 2 waits, beyond the time limit of 1 s; a larger limit waits longer");
  CHECK(seconds_since(start) >= 1);
  CHECK(world.aborted());

  WatchedWorld other({.timeout_s = 0});
  std::thread elsewhere([&] {
    sleep_ms(20);
    other.abort("rank 1: no more");
  });
  CHECK(message_of([&] {
          other.wait_until([] { return false; }, [] { return std::string("never"); });
        }) == "rank 1: no more");
  elsewhere.join();
  const auto deadlines = std::make_shared<Deadlines>(DeadlineRules{.unlearned_s = 1});
  WatchedWorld learned({.timeout_s = 0, .deadlines = deadlines});
  CHECK(message_of([&] {
          learned.wait_until([] { return false; }, [] { return std::string("rank 2 waits"); });
        }) == "rank 2 waits, beyond the limit of 1 s for the start; --comm-timeout sets another");
  CHECK(message_of([] { WatchedWorld({.timeout_s = -1}); }) ==
        "the time limit of a collective is a number of seconds, or 0 for none, got -1");
}

}  // namespace
