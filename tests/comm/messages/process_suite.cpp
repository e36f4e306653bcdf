// A file of its own: the suite is the same for every engine, and takes long to compile.
#include <dhp/comm/progress.hpp>
#include <tests/comm/collectives.hpp>
#include <tests/comm/process_ranks.hpp>

namespace tests {

namespace {

constexpr double patient_s = 2 * hang_s;

// Runs check_one(world, dev) on every rank of each world. It returns what is wrong; no world may end early.
void on_worlds_of(const MakeMessages& make, std::initializer_list<int> sizes,
                  const std::function<std::string(Comm<Cpu>&, Cpu&)>& check_one) {
  for (const int n : sizes)
    for (const auto& end : ends_of(n, patient_s, make, [&](Comm<Cpu>&world, Cpu&dev) {
           const std::string wrong = check_one(world, dev);
           check(wrong.empty(), wrong);
         }))
      CHECK(end == "");
}

Tensor<Cpu> zeros(Cpu& dev, std::int64_t count) {
  return Tensor<Cpu>::zeros(dev, DType::f32, Shape{count});
}

// Checks that all ranks but `alone` end with the same sentence, before hang_s is over, and returns the sentence.
std::string end_of(const MakeMessages& make, int ranks, double timeout_s, int alone,
                   const std::function<void(Comm<Cpu>&, Cpu&)>& body) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = ends_of(ranks, timeout_s, make, body);
  CHECK(seconds_since(start) < hang_s);
  const auto& first = ends[alone == 0 ? 1 : 0];
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != alone) CHECK(ends[static_cast<std::size_t>(rank)] == first);
  return first;
}

}  // namespace

void check_processes(const MakeMessages& make) {
  SUBCASE("collectives, groups and messages work") {
    for (const auto& [name, sizes, wrong] : all_checks())
      for (const int n : sizes) {
        CAPTURE(name);
        on_worlds_of(make, {n}, wrong);
      }
    std::atomic<int> sent = 0;
    on_worlds_of(make, {2},
                 [&](Comm<Cpu>& world, Cpu& dev) { return wrong_capacity(world, dev, sent); });
  }

  SUBCASE("no rank leaves a barrier before all ranks have entered") {
    for (const int n : {2, 3, 5, 8}) {
      std::atomic<int> came = 0;
      on_worlds_of(make, {n}, [&](Comm<Cpu>& world, Cpu&) -> std::string {
        for (int round = 1; round <= 20; ++round) {
          if (world.rank() == round % n) sleep_ms(1);
          ++came;
          world.barrier();
          if (came < n * round) return "one is missing";
          world.barrier();
        }
        return "";
      });
    }
  }

  SUBCASE("an expected message may arrive before its recv; another recv is refused") {
    std::atomic<int> sent = 0;
    on_worlds_of(make, {2}, [&](Comm<Cpu>& world, Cpu& dev) -> std::string {
      const int messages = world.send_capacity() + 1;  // the last send waits for the first message
      if (world.rank() == 0) {
        for (; sent < messages; ++sent) world.send(dev, zeros(dev, 3), 1);
        return "";
      }
      world.expect(dev, DType::f32, {3}, 0);
      const bool by_itself = has(world.transport(), "Gloo");  // others progress within calls only
      if (by_itself && !dhp::detail::poll_until([&] { return sent == messages; }, hang_s))
        return "it waits for recv";
      auto x = zeros(dev, 3), other = zeros(dev, 7);
      if (!has(message_of([&] { world.recv(dev, other.mut(), 0); }), "7 f32 where 3 f32 was"))
        return "a wrong recv";
      for (int message = 0; message < messages; ++message) world.recv(dev, x.mut(), 0);
      return "";
    });
  }

  SUBCASE("messages of two groups of the same ranks do not mix") {
    on_worlds_of(make, {2, 3}, [](Comm<Cpu>& world, Cpu& dev) -> std::string {
      auto one = world.split(0, world.rank()), two = world.split(0, world.rank());
      auto x = tensor_of<float>(dev, {0}), y = tensor_of<float>(dev, {0});
      if (world.rank() == 0) {
        one.send(dev, tensor_of<float>(dev, {1}), 1);
        two.send(dev, tensor_of<float>(dev, {2}), 1);
      } else if (world.rank() == 1) {
        two.recv(dev, y.mut(), 0);
        one.recv(dev, x.mut(), 0);
        if (x.to_host<float>(dev)[0] != 1 || y.to_host<float>(dev)[0] != 2) return "mixed up";
      }
      return "";
    });
  }

  SUBCASE("many chunks, of slices of unequal length") {
    on_worlds_of(make, {2, 3}, [](Comm<Cpu>& world, Cpu& dev) -> std::string {
      const std::int64_t count = 5000011;
      auto x = tensor_of(dev, brought_by<float>(world.rank(), count));
      world.all_reduce(dev, x.mut()).wait();
      const int n = world.size();
      const auto expected = generate<float>(count, [&](auto i) { return reduced_value(n, i); });
      return same_bits(x.to_host<float>(dev), expected) ? "" : "all_reduce";
    });
  }

  SUBCASE("a second thread of a rank is refused, and the first one goes on") {
    std::vector<std::string> errors(2);
    std::atomic<bool> tried = false;
    const auto ends = ends_of(
        2, patient_s, make,
        [&](Comm<Cpu>& world, Cpu& dev) {
          auto mine = zeros(dev, 5), other = zeros(dev, 5);
          if (world.rank() == 0) {
            std::thread first([&] { world.recv(dev, mine.mut(), 1); });
            std::thread second([&] { world.barrier(); });
            sleep_ms(2500);  // the other two are in their calls by then
            errors[0] = message_of([&] { world.recv(dev, other.mut(), 1); });
            errors[1] = message_of([&] { world.all_reduce(dev, other.mut()); });
            tried = true;
            first.join();
            second.join();
            return;
          }
          (void)dhp::detail::poll_until([&] { return tried.load(); }, hang_s);
          world.send(dev, mine.share(), 0);
          world.barrier();
        },
        false);
    for (const auto& end : ends) CHECK(end == "");
    CHECK(has(errors[0], "recv at process_suite.cpp:"));
    CHECK(has(errors[1], "all_reduce at process_suite.cpp:"));
    for (const auto& sentence : errors)
      CHECK(has(sentence, ": another thread of this rank is using the communicator"));
  }

  SUBCASE("a message arrives although its sender has finished") {
    const auto ends = ends_of(2, patient_s, make, [&](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 3000000);
      if (world.rank() == 1) return world.send(dev, x.share(), 0);
      sleep_ms(100);
      world.recv(dev, x.mut(), 1);
    });
    for (const auto& end : ends) CHECK(end == "");
  }

  SUBCASE("a late rank is named with its last call, and as alive") {
    std::atomic<bool> over = false;
    const auto end = end_of(make, 3, 3, 1, [&](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 5);
      world.barrier();
      if (world.rank() == 1)
        return check(dhp::detail::poll_until([&] { return over.load(); }, hang_s), "");
      over = message_of([&] { world.all_reduce(dev, x.mut()).wait(); }) != "no error";
      world.barrier();  // throws the same error
    });
    CHECK(has(end, " waits in all_reduce of 5 f32 (sum) at process_suite.cpp:"));
    CHECK(has(end,
              " for rank 1 (thread 1), which is alive and in no call; its last one, barrier "
              "at process_suite.cpp:"));
    CHECK(has(end, ", beyond the time limit of 3 s; a larger limit waits longer"));
  }

  SUBCASE("a failed rank's message is quoted") {
    for (const int who : {0, 2}) {
      const auto end = end_of(make, 3, patient_s, who, [&](Comm<Cpu>& world, Cpu& dev) {
        world.barrier();
        if (world.rank() == who) fail("the disk is full");
        auto x = zeros(dev, 5);
        world.all_reduce(dev, x.mut());
      });
      CHECK(end == concat("rank ", who, ": the disk is full"));
    }
  }

  SUBCASE("ranks that disagree are told the difference before the time limit") {
    using Call = void (*)(Comm<Cpu>&, Cpu&);
    const auto odd_one_does = [&](Call odd, Call other) {
      return end_of(make, 3, patient_s, -1, [&](Comm<Cpu>& world, Cpu& dev) {
        world.barrier();
        (world.rank() == 1 ? odd : other)(world, dev);
      });
    };
    const Call sum_of_5 = [](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 5);
      world.all_reduce(dev, x.mut());
    };
    const Call sum_of_7 = [](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 7);
      world.all_reduce(dev, x.mut());
    };
    const Call from_rank_1 = [](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 5);
      world.broadcast(dev, x.mut(), 1);
    };
    const auto shape = odd_one_does(sum_of_7, sum_of_5);
    CHECK(has(shape, "ranks do not agree: rank "));
    // The error is rank 0's or rank 2's, whichever comes first.
    CHECK(has(shape, " calls all_reduce of 5 f32 (sum) at process_suite.cpp:"));
    CHECK(has(shape, "rank 1 calls all_reduce of 7 f32 (sum) at process_suite.cpp:"));
    CHECK(has(odd_one_does(from_rank_1, sum_of_5), "rank 1 calls broadcast of 5 f32 from rank 1"));
  }

  SUBCASE("calls in another order, and a message of another type, are refused") {
    const auto order = end_of(make, 2, patient_s, -1, [](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 5), y = zeros(dev, 6);
      if (world.rank() == 0) world.all_reduce(dev, x.mut());
      world.all_reduce(dev, y.mut());
      if (world.rank() == 1) world.all_reduce(dev, x.mut());
    });
    CHECK(has(order, "rank 0 calls all_reduce of 5 f32 (sum) at process_suite.cpp:"));
    CHECK(has(order, "rank 1 calls all_reduce of 6 f32 (sum) at process_suite.cpp:"));
    const auto message = end_of(make, 2, patient_s, -1, [](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, world.rank() == 0 ? 3 : 2);
      if (world.rank() == 0) world.send(dev, x.share(), 1);
      else world.recv(dev, x.mut(), 0);
      world.barrier();
    });
    CHECK(has(message,
              "ranks do not agree: rank 0 calls send of a message of 3 f32 at process_suite.cpp:"));
    CHECK(has(message, ", rank 1 calls recv of a message of 2 f32 at process_suite.cpp:"));
  }

  SUBCASE("a wait for a finished rank ends") {
    const auto end = end_of(make, 3, patient_s, 1, [](Comm<Cpu>& world, Cpu& dev) {
      auto x = zeros(dev, 5);
      world.barrier();
      if (world.rank() != 1) world.all_reduce(dev, x.mut());
    });
    CHECK(has(end, "rank 1 (thread 1), which has finished"));
    CHECK(has(end, "all_reduce of 5 f32 (sum) at process_suite.cpp:"));
  }

  SUBCASE("the end of the world reaches a rank in a group, and in the background") {
    const auto end = end_of(make, 4, patient_s, 3, [](Comm<Cpu>& world, Cpu& dev) {
      auto pair = world.split(world.rank() / 2, world.rank());
      Progress<Cpu> progress(pair);
      world.barrier();
      auto x = zeros(dev, 5);
      if (world.rank() == 3) fail("out of paper");
      if (world.rank() == 2) progress.start(dev, Collective<Cpu>::all_reduce(x.mut())).wait();
      world.barrier();
    });
    CHECK(end == "rank 3: out of paper");
  }
}

}  // namespace tests
