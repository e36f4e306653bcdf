// Collective decisions of thread ranks: agreement on a call, and splitting into groups.
#include <dhp/comm/threads/group.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using dhp::detail::WaitWord;

// Rank 1 makes another call than ranks 0 and 2, and every rank gets an error that names both calls. It names rank 2
// instead of rank 0 if the failure detector looks before rank 0 has called.
template <class Usual, class Odd>
std::string disagreement(Usual usual, Odd odd) {
  std::vector<std::string> heard(3);
  (void)message_of([&] {
    run_ranks(
        3,
        [&](Comm<Cpu> world) {
          Cpu dev;
          heard[static_cast<std::size_t>(world.rank())] = message_of([&] {
            if (world.rank() == 1) odd(world, dev);
            else usual(world, dev);
          });
        },
        patient);
  });
  for (const auto& message : heard) CHECK(message == heard[0]);
  return heard[0];
}

template <class T = float>
auto reduce(std::int64_t count, Reduce how = Reduce::sum) {
  return [=](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, dtype_of<T>(), {count});
    world.all_reduce(dev, x.mut(), how).wait();
  };
}

TEST_CASE("group: ranks that disagree all see both calls") {
  const auto count = disagreement(reduce(300), reduce(301));
  CHECK(has(count, " calls all_reduce of 300 f32 (sum) at group.cpp:"));
  CHECK(has(count, "rank 1 calls all_reduce of 301 f32 (sum) at group.cpp:"));
  // A small and a large all_reduce, which use different algorithms.
  CHECK(has(disagreement(reduce(3), reduce(3000)), "rank 1 calls all_reduce of 3000"));
  CHECK(has(disagreement(reduce(0), reduce(1)), " calls all_reduce of 0"));
  CHECK(has(disagreement(reduce<float>(8), reduce<std::int32_t>(8)),
            "rank 1 calls all_reduce of 8 i32"));
  CHECK(has(disagreement(reduce(8), reduce(8, Reduce::max)),
            "rank 1 calls all_reduce of 8 f32 (max)"));
  const auto barrier = [](Comm<Cpu>& world, Cpu&) { world.barrier(); };
  const auto split = [](Comm<Cpu>& world, Cpu&) { (void)world.split(0, 0); };
  CHECK(has(disagreement(reduce(8), barrier), "rank 1 calls barrier at"));
  CHECK(has(disagreement(barrier, split), " calls barrier at"));
  const auto from = [](int root) {
    return [root](Comm<Cpu>& world, Cpu& dev) {
      auto x = Tensor<Cpu>::zeros(dev, DType::f32, {8});
      world.broadcast(dev, x.mut(), root).wait();
    };
  };
  CHECK(has(disagreement(from(0), from(2)), "rank 1 calls broadcast of 8 f32 from rank 2"));
}

TEST_CASE("group: split groups by color, and orders by key, then by rank") {
  struct Seat {
    int rank, size;
    std::vector<std::int32_t> members;
  };
  const auto seats = on_ranks(6, [](Comm<Cpu>& world, Cpu& dev) {
    // Colors 0 1 0 1 -1 0; keys 5 for rank 0, else 1.
    const int color = world.rank() == 4 ? -1 : world.rank() % 2 == 0 || world.rank() == 5 ? 0 : 1;
    auto group = world.split(color, world.rank() == 0 ? 5 : 1);
    return Seat{
        group.rank(), group.size(),
        detail::rows_of_all<Cpu, std::int32_t>(dev, group, {world.rank()}, CallSite::current())};
  });
  const std::vector<std::int32_t> zero{2, 5, 0}, one{1, 3}, none{4};
  const std::vector<const std::vector<std::int32_t>*> expected{&zero, &one,  &zero,
                                                               &one,  &none, &zero};
  for (std::size_t rank = 0; rank < 6; ++rank) {
    CHECK(seats[rank].members == *expected[rank]);
    CHECK(seats[rank].size == static_cast<int>(expected[rank]->size()));
    CHECK(seats[rank].members[static_cast<std::size_t>(seats[rank].rank)] ==
          static_cast<std::int32_t>(rank));
  }
}

TEST_CASE("group: a second thread of one rank is refused, and the first one goes on") {
  auto comms = detail::ThreadComm::all_of(std::make_shared<Latch>(), 2);
  Cpu dev;
  auto x = Tensor<Cpu>::zeros(dev, DType::f32, {3});
  const auto here = CallSite::current();
  std::thread barrier([&] { comms[0].barrier(here); });
  std::thread receives([&] { comms[0].recv(dev, x.mut(), 1, here); });
  sleep_ms(2500);  // the two threads are in their calls by then
  const auto in_barrier = message_of([&] { comms[0].barrier(here); });
  const auto in_recv = message_of([&] { comms[0].recv(dev, x.mut(), 1, here); });
  comms[1].barrier(here);
  comms[1].send(dev, tensor_of<float>(dev, {1, 2, 3}), 0, here);
  barrier.join();
  receives.join();
  CHECK(has(in_barrier, "barrier at group.cpp:"));
  CHECK(has(in_recv, ": another thread of this rank is using the communicator"));
}

TEST_CASE("wait word: counts changes, and the end is not a change") {
  WaitWord word;
  const auto start = word.read();
  CHECK(!WaitWord::ended(start));
  word.change();
  CHECK(WaitWord::changed(start, word.read()));
  const auto before = word.read();
  word.wake(false);  // wakes waiting threads without a change
  CHECK(word.read() != before);
  CHECK(!WaitWord::changed(before, word.read()));
  CHECK(!WaitWord::ended(word.read()));
  word.wake(true);
  CHECK(WaitWord::ended(word.read()));
  CHECK(!WaitWord::changed(before, word.read()));
  CHECK(!word.change_unless_ended());
  CHECK(!WaitWord::changed(before, word.read()));
  word.change();  // a collective under way may still finish
  CHECK(WaitWord::changed(before, word.read()));
  CHECK(WaitWord::ended(word.read()));
}

/// Threads take turns, and each waits for its turn. Returns the number of turns.
int turns(int threads, int rounds) {
  WaitWord word;
  std::atomic<int> turn = 0;
  on_threads(static_cast<std::size_t>(threads), [&](std::size_t mine) {
    for (int at = static_cast<int>(mine); at < rounds; at += threads) {
      for (auto seen = word.read(); turn != at; seen = word.read())
        if (turn != at) (void)word.wait(seen, {1'000'000, 0});
      ++turn;
      word.change();
    }
  });
  return turn;
}

TEST_CASE("wait word: no change is missed, also under load") {
  for (const int threads : {1, 2, 5}) CHECK(turns(threads, 3000) == 3000);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> others;
  for (unsigned core = 0; core < 2 * std::thread::hardware_concurrency(); ++core)
    others.emplace_back([&] {
      while (!stop) continue;
    });
  CHECK(turns(3, 3000) == 3000);
  stop = true;
}

}  // namespace
