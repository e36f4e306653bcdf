// No wait is for ever: the time limit, and ranks that have gone home.
#include <dhp/comm/thread_world.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;
using Clock = std::chrono::steady_clock;

// What run_ranks says when rank 1 does something else than the others.
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

TEST_CASE("world: a missing rank is named after the time limit") {
  std::atomic<int> line = 0;
  const auto start = Clock::now();
  const auto message = outcome(
      3, 1,
      [&](auto& world, auto& dev, auto& x) {
        line = __LINE__, world.all_reduce(dev, x.mut()).wait();
      },
      [](auto&, auto&, auto&) { sleep_ms(1500); });
  CHECK(seconds_since(start) >= 1);
  CHECK(contains(message, concat("waits in all_reduce at thread_world.cpp:", line.load(),
                                 " for rank 1 (which is in no collective)")));
  CHECK(contains(message, "beyond the time limit of 1 s; a larger limit"));
}

TEST_CASE("world: a rank that waits elsewhere is named with the place") {
  int line = 0;
  const auto message = outcome(2, 0.2, barrier, [&](auto& world, auto& dev, auto& x) {
    line = __LINE__, world.recv(dev, x.mut(), 0);
  });
  // Either of the two may be the one that is late.
  CHECK(contains(message, "in barrier at thread_world.cpp:"));
  CHECK(contains(message, concat("in recv at thread_world.cpp:", line)));
}

TEST_CASE("world: of a chain of waits, the end is named") {
  // 0 and 2 wait for 1, which waits for 3, which is away.
  const auto message = message_of([] {
    run_ranks(4,
              [](Comm<Cpu> world) {
                Cpu dev;
                auto x = tensor_of<float>(dev, {1});
                auto front = world.split(world.rank() < 3 ? 0 : 1, 0);
                if (world.rank() == 3) sleep_ms(2500);
                else if (world.rank() == 1) world.recv(dev, x.mut(), 3);
                else front.barrier();
              },
              {.timeout_s = 1});
  });
  CHECK(contains(message, "rank 1 waits in recv"));
  CHECK(contains(message, "for rank 3 (which is in no collective)"));
}

TEST_CASE("world: a learned limit ends a hang soon after a few quick steps") {
  // Without --comm-timeout: the limit was that of the start when the wait began.
  const auto deadlines =
      std::make_shared<Deadlines>(DeadlineRules{.least_s = 1, .unlearned_s = 60, .passes = 5});
  const auto start = Clock::now();
  const auto message = message_of([&] {
    run_ranks(3,
              [&](Comm<Cpu> world) {
                for (int step = 0; step < 7; ++step) {
                  if (world.rank() == 0) deadlines->enter(Section::step);
                  if (world.rank() == 1 && step == 6) sleep_ms(2500);
                  world.barrier();
                }
              },
              {.deadlines = deadlines});
  });
  CHECK(seconds_since(start) >= 1);
  CHECK(seconds_since(start) < 15);
  CHECK(contains(message,
                 "for rank 1 (which is in no collective), beyond the limit of 1 s for a "
                 "step, the least there is; --comm-timeout sets another"));
}

TEST_CASE("world: the limit is for each wait, not for the run") {
  run_ranks(2,
            [](Comm<Cpu> world) {
              for (int round = 0; round < 6; ++round) {
                if (world.rank() == round % 2) sleep_ms(100);
                world.barrier();
              }
            },
            {.timeout_s = 0.5});
  run_ranks(2,
            [](Comm<Cpu> world) {
              if (world.rank() == 1) sleep_ms(50);
              world.barrier();
            },
            {.timeout_s = 0});
}

TEST_CASE("world: a rank that has finished is waited for in vain, which is seen at once") {
  const auto home = [](auto&, auto&, auto&) {};
  const auto home_later = [](auto&, auto&, auto&) { sleep_ms(50); };
  const auto start = Clock::now();
  const auto gone = "for rank 1, which has finished";
  CHECK(contains(outcome(4, 15, barrier, home), gone));
  const auto later = outcome(4, 15, barrier, home_later);
  CHECK(contains(later, "waits in barrier at thread_world.cpp:"));
  CHECK(contains(later, gone));
  const auto recv = [](auto& world, auto& dev, auto& x) { world.recv(dev, x.mut(), 1); };
  CHECK(contains(outcome(2, 15, recv, home), gone));
  CHECK(contains(outcome(2, 15, recv, home_later), gone));
  const auto fill = [](auto& world, auto& dev, auto& x) {
    for (int message = 0; message <= world.send_capacity(); ++message)
      world.send(dev, x.share(), 1);
  };
  CHECK(contains(outcome(2, 15, fill, home), gone));
  CHECK(contains(outcome(2, 15, fill, home_later), gone));
  const auto split = [](auto& world, auto&, auto&) { (void)world.split(0, 0); };
  CHECK(contains(outcome(3, 15, split, home), gone));
  CHECK(seconds_since(start) < 15);
}

TEST_CASE("world: what a rank has left behind can be received after it has finished") {
  for (int round = 0; round < 20; ++round) {
    const auto got = on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
      auto x = tensor_of<std::int32_t>(dev, {0});
      std::int32_t sum = 0;
      for (std::int32_t message = 1; message <= 3; ++message) {
        if (world.rank() == 1) world.send(dev, tensor_of<std::int32_t>(dev, {message}), 0);
        else world.recv(dev, x.mut(), 1), sum += x.view().data<std::int32_t>()[0];
        if (world.rank() == 0 && round % 2 == 0) sleep_ms(1);
      }
      return sum;
    });
    CHECK(got[0] == 6);
  }
}

TEST_CASE("world: abort ends all, also for who comes later") {
  ThreadWorld world(2, 0);
  CHECK(!world.aborted());
  world.check_alive();
  world.abort("first");
  world.abort("second");
  CHECK(world.aborted());
  CHECK(message_of([&] { world.check_alive(); }) == "first");
}

}  // namespace
