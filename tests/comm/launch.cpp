#include <dhp/comm/launch.hpp>
#include <dhp/comm/progress.hpp>
#include <tests/comm/ranks.hpp>

#include <future>

namespace {

using Clock = std::chrono::steady_clock;
using Waits = std::function<void(Comm<Cpu>&, Comm<Cpu>&, Cpu&)>;

struct Place {
  const char* name;
  Waits wait;
  bool needs_rank_2 = true;
};

// The calls in which ranks can wait. `part` is a group that was split off, without rank 2.
std::vector<Place> places() {
  const auto reduce = [](Comm<Cpu>& group, Cpu& dev, std::int64_t count) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {count});
    for (;;) group.all_reduce(dev, x.mut()).wait();
  };
  return {
      {"small all_reduce", [=](auto& world, auto&, auto& dev) { reduce(world, dev, 3); }},
      {"large all_reduce", [=](auto& world, auto&, auto& dev) { reduce(world, dev, 9000); }},
      {"all_reduce of a part", [=](auto&, auto& part, auto& dev) { reduce(part, dev, 9000); },
       false},
      {"barrier", [](auto& world, auto&, auto&) { world.barrier(); }},
      {"split", [](auto& world, auto&, auto&) { (void)world.split(0, 0); }},
      {"recv",
       [](auto& world, auto&, auto& dev) {
         auto x = Tensor<Cpu>::zeros(dev, DType::f32, {3});
         world.recv(dev, x.mut(), 2);
       }},
      {"recv from another",
       [](auto& world, auto&, auto& dev) {
         auto x = Tensor<Cpu>::zeros(dev, DType::f32, {3});
         world.recv(dev, x.mut(), world.rank() == 0 ? 1 : 0);
       },
       false},
      {"a full edge",
       [](auto& world, auto&, auto& dev) {
         const auto x = Tensor<Cpu>::zeros(dev, DType::f32, {3});
         for (;;) world.send(dev, x.share(), 2);
       }},
  };
}

TEST_CASE("launch: a rank that throws ends the others wherever they wait, and is named") {
  for (const auto& place : places())
    for (const double delay_ms : {0., 5.}) {
      CAPTURE(place.name);
      const auto start = Clock::now();
      std::atomic<int> ended = 0;
      const auto message = message_of([&] {
        run_ranks(
            4,
            [&](Comm<Cpu> world) {
              Cpu dev;
              try {
                auto part = world.split(world.rank() == 2 ? 1 : 0, 0);  // all ranks have begun
                if (world.rank() == 2) {
                  sleep_ms(delay_ms);
                  fail("the disk is full");
                }
                place.wait(world, part, dev);
              } catch (const Aborted& error) {
                ended += error.sentence() == "rank 2: the disk is full";
                throw;
              }
            },
            patient);
      });
      CHECK(message == "rank 2: the disk is full");
      CHECK(ended == 3);
      CHECK(seconds_since(start) < hang_s);
    }
}

TEST_CASE("launch: waits for a finished rank end at once, even without a watchdog") {
  for (const auto& place : places())
    for (const double delay_ms : {0., 5.}) {
      if (!place.needs_rank_2) continue;
      CAPTURE(place.name);
      std::atomic<int> ended = 0;
      std::optional<Comm<Cpu>> kept;
      std::atomic<bool> over = false;
      const auto guard = std::async(std::launch::async, [&] {  // run_ranks has no time limit
        const auto start = Clock::now();
        while (!over && seconds_since(start) < hang_s) sleep_ms(1);
        if (!over) kept->abort("nobody notices");
      });
      const auto message = message_of([&] {
        run_ranks(4, [&](Comm<Cpu> world) {
          Cpu dev;
          auto part = world.split(0, 0);
          if (world.rank() == 2) {
            kept = world;
            return sleep_ms(delay_ms);
          }
          try {
            place.wait(world, part, dev);
          } catch (const Aborted&) {
            ++ended;
            throw;
          }
        });
      });
      over = true;
      CHECK(message.starts_with("rank "));
      CHECK(has(message, " waits in "));
      CHECK(has(message, " at launch.cpp:"));
      CHECK(has(message, " for rank 2, which has finished"));
      CHECK(ended == 3);
    }
  // Messages of the finished rank are still received, and ranks that do not need it any more go on.
  run_ranks(3, [](Comm<Cpu> world) {
    Cpu dev;
    auto part = world.split(world.rank() == 2 ? 1 : 0, 0);
    if (world.rank() == 2) return world.send(dev, tensor_of<float>(dev, {7}), 0);
    sleep_ms(5);
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {1});
    if (world.rank() == 0) world.recv(dev, x.mut(), 2);
    part.all_reduce(dev, x.mut());
    check(x.view().data<float>()[0] == 7, "it has sent 7");
  });
}

TEST_CASE("launch: ranks that wait for each other end, and the error says where they wait") {
  const auto message_when = [](auto wait) {
    const auto latch = std::make_shared<Latch>();
    const auto comms = dhp::detail::ThreadComm::all_of(latch, 3);
    latch->look = {0, 30'000'000};
    const auto body = [&](int rank) {
      auto world = Comm<Cpu>::of(comms[static_cast<std::size_t>(rank)]);
      auto pair = world.split(rank / 2, rank);
      Progress<Cpu> helper(pair);
      if (rank < 2) wait(rank, pair, helper);  // rank 2 finishes
    };
    return message_of([&] { dhp::detail::run_rank_threads(*latch, 3, body, CallSite::current()); });
  };
  const auto crossed = message_when([](int rank, auto& pair, auto&) {
    Cpu dev;
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {1});
    pair.recv(dev, x.mut(), 1 - rank);
  });
  CHECK(crossed.starts_with("all ranks wait for each other: rank 0 in recv at launch.cpp:"));
  const auto branch = message_when([](int rank, auto& pair, auto& helper) {
    Cpu dev;
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {9000});
    if (rank == 0) helper.start(dev, Collective<Cpu>::all_reduce(x.mut())).wait();
    else pair.barrier();
  });
  CHECK(branch.starts_with("all ranks wait for each other: rank 0 in all_reduce at launch.cpp:"));
  CHECK(has(branch, ", rank 1 in barrier at launch.cpp:"));
  // A rank that computes, or that waits for something else, is no reason to end.
  CHECK(message_when([](int rank, auto& pair, auto&) {
          if (rank == 1) sleep_ms(900);
          pair.barrier();
        }) == "no error");
}

TEST_CASE("launch: no rank reads a buffer after its owner has freed it") {
  // Each round has fresh buffers, freed when the world ends: AddressSanitizer finds a late read.
  for (int round = 0; round < 30; ++round)
    CHECK(message_of([&] {
            run_ranks(
                4,
                [&](Comm<Cpu> world) {
                  auto part = world.split(world.rank() == 3 ? 1 : 0, 0);
                  if (world.rank() == 3) {
                    sleep_ms(0.3 * round);
                    fail("stop");
                  }
                  Cpu dev;
                  for (;;) {
                    std::vector<float> x(20000), y(60000);
                    const View<Cpu> in(reinterpret_cast<std::byte*>(x.data()), DType::f32, {20000});
                    const View<Cpu> out(reinterpret_cast<std::byte*>(y.data()), DType::f32,
                                        {60000});
                    part.all_reduce(dev, in);
                    part.all_gather(dev, in, out);
                  }
                },
                patient);
          }) == "rank 3: stop");
}

TEST_CASE("launch: the first failure counts") {
  CHECK(message_of([] {
          run_ranks(3, [](Comm<Cpu> world) {
            if (world.rank() != 1) (void)message_of([&] { world.barrier(); });
            fail("number ", world.rank());
          });
        }) == "rank 1: number 1");
}

TEST_CASE("launch: any exception arrives as an Error with the place of the throw") {
  CHECK(message_of([] {
          run_ranks(2, [](Comm<Cpu> world) {
            if (world.rank() == 1) throw std::runtime_error("plain");
            world.barrier();
          });
        }) == "rank 1: plain");
  CHECK(message_of([] {
          run_ranks(2, [](Comm<Cpu> world) {
            if (world.rank() == 0) throw 7;
            world.barrier();
          });
        }) == "rank 0: an exception of unknown type");
  int line = 0;
  std::string what;
  try {
    run_ranks(2, [&](Comm<Cpu> world) {
      if (world.rank() == 1) line = __LINE__, fail("here");
      world.barrier();
    });
  } catch (const Error& error) {
    what = error.what();
  }
  CHECK(has(what, "rank 1: here ["));
  CHECK(has(what, concat("launch.cpp:", line, "]")));
}

TEST_CASE("launch: abort ends the world even if every rank returns") {
  CHECK(message_of([] {
          run_ranks(2, [](Comm<Cpu> world) {
            if (world.rank() == 0) world.abort("no more");
          });
        }) == "no more");
}

TEST_CASE("launch: a world of one runs in the calling thread") {
  const auto caller = std::this_thread::get_id();
  bool same = false;
  run_ranks(1, [&](Comm<Cpu> world) {
    same = std::this_thread::get_id() == caller && world.size() == 1;
  });
  CHECK(same);
  CHECK(message_of([] { run_ranks(1, [](Comm<Cpu>) { fail("alone"); }); }) == "alone");
  CHECK(message_of([] { run_ranks(0, [](Comm<Cpu>) {}); }) == "a world has at least 1 rank, got 0");
}

}  // namespace
