// Agreement and splitting: what ranks settle when all of them have come.
#include <dhp/comm/thread_group.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

// Rank 1 makes one call, the others another; every rank gets to hear of both, and all can go on.
template <class Usual, class Odd>
std::string disagreement(Usual usual, Odd odd) {
  const auto messages = on_ranks(3, [&](Comm<Cpu>& world, Cpu& dev) {
    auto text = message_of([&] {
      if (world.rank() == 1) odd(world, dev);
      else usual(world, dev);
    });
    world.barrier();
    return text;
  });
  for (const auto& message : messages) CHECK(message == messages[0]);
  return messages[0];
}

template <class T = float>
auto reduce(std::int64_t count, Reduce how = Reduce::sum) {
  return [=](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, dtype_of<T>(), {count});
    world.all_reduce(dev, x.mut(), how).wait();
  };
}

TEST_CASE("group: ranks that do not agree all hear of both calls") {
  const auto count = disagreement(reduce(300), reduce(301));
  CHECK(contains(count, "rank 0 calls all_reduce of 300 f32 (sum) at thread_group.cpp:"));
  CHECK(contains(count, "rank 1 calls all_reduce of 301 f32 (sum) at thread_group.cpp:"));
  // One small, one large: they take different ways.
  CHECK(contains(disagreement(reduce(3), reduce(3000)), "rank 1 calls all_reduce of 3000"));
  CHECK(contains(disagreement(reduce(0), reduce(1)), "rank 0 calls all_reduce of 0"));
  CHECK(contains(disagreement(reduce<float>(8), reduce<std::int32_t>(8)),
                 "rank 1 calls all_reduce of 8 i32"));
  CHECK(contains(disagreement(reduce(8), reduce(8, Reduce::max)),
                 "rank 1 calls all_reduce of 8 f32 (max)"));
  const auto barrier = [](Comm<Cpu>& world, Cpu&) { world.barrier(); };
  const auto split = [](Comm<Cpu>& world, Cpu&) { (void)world.split(0, 0); };
  CHECK(contains(disagreement(reduce(8), barrier), "rank 1 calls barrier at"));
  CHECK(contains(disagreement(barrier, split), "rank 0 calls barrier at"));
  const auto from = [](int root) {
    return [root](Comm<Cpu>& world, Cpu& dev) {
      auto x = Tensor<Cpu>::zeros(dev, DType::f32, {8});
      world.broadcast(dev, x.mut(), root).wait();
    };
  };
  CHECK(contains(disagreement(from(0), from(2)), "rank 1 calls broadcast of 8 f32 from rank 2"));
}

TEST_CASE("group: the message names the two lines") {
  std::atomic<int> usual = 0, odd = 0;
  const auto message = disagreement(
      [&](Comm<Cpu>& world, Cpu& dev) {
        auto x = Tensor<Cpu>::zeros(dev, DType::f32, {8});
        usual = __LINE__, world.all_reduce(dev, x.mut()).wait();
      },
      [&](Comm<Cpu>& world, Cpu&) { odd = __LINE__, world.barrier(); });
  CHECK(contains(message, concat("at thread_group.cpp:", usual.load())));
  CHECK(contains(message, concat("at thread_group.cpp:", odd.load())));
}

TEST_CASE("group: split by colour, ordered by key, then by rank") {
  struct Seat {
    int rank, size;
    std::vector<std::int32_t> members;
  };
  const auto seats = on_ranks(6, [](Comm<Cpu>& world, Cpu& dev) {
    // Colours 0 1 0 1 -1 0; keys 5 for rank 0, else 1.
    const int color = world.rank() == 4 ? -1 : world.rank() % 2 == 0 || world.rank() == 5 ? 0 : 1;
    auto group = world.split(color, world.rank() == 0 ? 5 : 1);
    const auto me = tensor_of<std::int32_t>(dev, {world.rank()});
    Tensor<Cpu> all(dev, DType::i32, {group.size()});
    group.all_gather(dev, me, all.mut()).wait();
    return Seat{group.rank(), group.size(), all.to_host<std::int32_t>(dev)};
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

TEST_CASE("group: two of the same ranks do not mix") {
  const auto results = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto forward = world.split(0, world.rank());
    auto backward = world.split(0, world.rank());
    const auto a = tensor_of<float>(dev, {1}), b = tensor_of<float>(dev, {2});
    auto x = tensor_of<float>(dev, {0});
    const int other = 1 - world.rank();
    forward.send(dev, a.share(), other);
    backward.send(dev, b.share(), other);
    backward.recv(dev, x.mut(), other);
    return x.to_host<float>(dev)[0];
  });
  CHECK(results == std::vector<float>{2, 2});
}

TEST_CASE("group: a second thread of one rank is refused") {
  std::atomic<bool> inside = false, refused = false;
  const auto messages = on_ranks(2, [&](Comm<Cpu>& world, Cpu&) {
    if (world.rank() == 1) {
      while (!refused) sleep_ms(1);
      world.barrier();
      return std::string();
    }
    std::thread second([&] {
      inside = true;
      world.barrier();
    });
    while (!inside) sleep_ms(1);
    sleep_ms(50);
    const auto text = message_of([&] { world.barrier(); });
    refused = true;
    second.join();
    return text;
  });
  CHECK(contains(messages[0], "another thread of this rank is using the communicator"));
}

}  // namespace
