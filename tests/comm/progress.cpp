#include <dhp/comm/progress.hpp>
#include <tests/comm/ranks.hpp>

using Calls = Collective<Cpu>;

TEST_CASE("progress: collectives run while the rank calls others on the same ranks") {
  const auto broken = on_ranks(3, [](Comm<Cpu>& world, Cpu& dev) {
    Progress<Cpu> progress(world);
    int wrong = 0;
    for (int round = 0; round < 30; ++round) {
      std::vector<Tensor<Cpu>> buckets;
      std::vector<Event<Cpu>> events;
      for (std::int64_t size : {3, 500, 40}) {
        buckets.push_back(tensor_of(dev, std::vector<double>(static_cast<std::size_t>(size), 1)));
        events.push_back(progress.start(dev, Calls::all_reduce(buckets.back().mut())));
        auto x = tensor_of<double>(dev, {2});
        world.all_reduce(dev, x.mut()).wait();
        wrong += x.to_host<double>(dev)[0] != 6;
      }
      for (auto& event : events) event.wait();
      for (auto& bucket : buckets)
        for (const double value : bucket.to_host<double>(dev)) wrong += value != 3;
    }
    return wrong;
  });
  for (const int wrong : broken) CHECK(wrong == 0);
}

TEST_CASE("progress: its split is recorded with a line of progress.hpp") {
  std::vector<std::shared_ptr<FlightRecorder>> recorders;
  for (int rank = 0; rank < 2; ++rank) recorders.push_back(std::make_shared<FlightRecorder>());
  run_ranks(2, [](Comm<Cpu> world) { std::optional<Progress<Cpu>>().emplace(world); },
            {.timeout_s = hang_s, .recorders = recorders});
  CHECK(has(to_text(recorders[0]->contents().ended.front().call.where), "progress.hpp:"));
}

TEST_CASE("progress: two instances do not wait for each other") {
  // Each rank issues the collectives in another order: a single queue would deadlock.
  const auto sums = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    Progress<Cpu> first(world), second(world);
    double sum = 0;
    for (int round = 0; round < 50; ++round) {
      auto x = tensor_of<double>(dev, {1}), y = tensor_of<double>(dev, {10});
      if (world.rank() == 0) {
        first.start(dev, Calls::all_reduce(x.mut())).wait();
        second.start(dev, Calls::all_reduce(y.mut())).wait();
      } else {
        const auto later = second.start(dev, Calls::all_reduce(y.mut()));
        first.start(dev, Calls::all_reduce(x.mut())).wait();
        later.wait();
      }
      sum += x.to_host<double>(dev)[0] + y.to_host<double>(dev)[0];
    }
    return sum;
  });
  CHECK(sums == std::vector<double>{1100, 1100});
}

TEST_CASE("progress: collectives run in order of issue, and the destructor finishes them") {
  const auto results = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = tensor_of<double>(dev, {1});
    std::vector<Event<Cpu>> events;
    bool ordered = true;
    {
      Progress<Cpu> progress(world);
      for (int round = 0; round < 10; ++round)
        events.push_back(progress.start(dev, Calls::all_reduce(x.mut())));  // doubles each time
      events[4].wait();
      for (std::size_t at = 0; at < 4; ++at) ordered = ordered && events[at].done();
    }
    return ordered && events.back().done() ? x.to_host<double>(dev)[0] : -1;
  });
  CHECK(results == std::vector<double>{1024, 1024});
}

TEST_CASE("progress: a failure reaches the event, and later collectives still run") {
  const auto messages = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    Progress<Cpu> progress(world);
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {world.rank() + 3});
    auto y = tensor_of<float>(dev, {1});
    const auto bad = progress.start(dev, Calls::all_reduce(x.mut()));
    const auto good = progress.start(dev, Calls::all_reduce(y.mut()));
    auto text = message_of([&] { bad.wait(); });
    good.wait();
    return y.to_host<float>(dev)[0] == 2 ? text : "the second failed too";
  });
  for (const auto& message : messages) {
    CHECK(has(message, "all_reduce of 3 f32 (sum) at progress.cpp:"));
    CHECK(has(message, "all_reduce of 4 f32 (sum) at progress.cpp:"));
  }
}

TEST_CASE("progress: a rank that throws with collectives under way ends all, and is named") {
  // Rank 0 fails while its own collective waits for rank 1, which waits for rank 0's message.
  const auto start = std::chrono::steady_clock::now();
  CHECK(message_of([] {
          run_ranks(
              2,
              [](Comm<Cpu> world) {
                Cpu dev;
                auto x = tensor_of<float>(dev, {1}), y = tensor_of<float>(dev, {1});
                Progress<Cpu> progress(world);
                if (world.rank() == 0) {
                  const auto event = progress.start(dev, Calls::all_reduce(x.mut()));
                  const auto queued = progress.start(dev, Calls::all_reduce(y.mut()));
                  sleep_ms(5);
                  fail("out of paper");
                }
                world.recv(dev, x.mut(), 0);
              },
              patient);
        }) == "rank 0: out of paper");
  CHECK(seconds_since(start) < hang_s);
}

TEST_CASE("progress: a failed collective is reported even if no rank waits for it") {
  // Rank 1 ends without its part of the collective.
  const auto message = message_of([] {
    run_ranks(
        2,
        [](Comm<Cpu> world) {
          Cpu dev;
          auto x = tensor_of<float>(dev, {1});
          Progress<Cpu> progress(world);
          if (world.rank() == 0) (void)progress.start(dev, Calls::all_reduce(x.mut()));
        },
        patient);
  });
  CHECK(has(message, "rank 0 waits in all_reduce of 1 f32 (sum) at progress.cpp:"));
  CHECK(has(message, "for rank 1, which has finished"));
}
