#include <dhp/comm/threads.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

template <class Body>
void for_every_type(Body body) {
  for (const auto type :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    CAPTURE(to_text(type));
    visit_any(type, body);
  }
}

// Small integers, so that every sum is exact in every type.
std::int64_t value(int rank, std::int64_t i) { return rank + i % 3 + 1; }

// Below and above the size at which an all_reduce changes its way, and not divisible by the ranks.
constexpr std::int64_t counts[] = {0, 1, 5, 64, 1037};

template <class T>
std::vector<T> mine(const Comm<Cpu>& world, std::int64_t count) {
  return generate<T>(count, [&](auto i) { return value(world.rank(), i); });
}

TEST_CASE("threads: all_reduce") {
  for (const int n : {1, 2, 3, 4, 8})
    for_every_type([&]<class T>(Tag<T>) {
      for (const auto count : counts)
        for (const auto reduce : {Reduce::sum, Reduce::max, Reduce::min}) {
          const auto got = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
            auto x = tensor_of(dev, mine<T>(world, count));
            world.all_reduce(dev, x.mut(), reduce).wait(dev);
            return x.template to_host<T>(dev);
          });
          const auto expected = generate<T>(count, [&](auto i) {
            if (reduce == Reduce::sum) return n * (n - 1) / 2 + n * value(0, i);
            return value(reduce == Reduce::max ? n - 1 : 0, i);
          });
          for (const auto& result : got) REQUIRE(same_bits(result, expected));
        }
    });
}

TEST_CASE("threads: small all_reduces back to back, with ranks a step apart") {
  const int n = 4;
  const auto broken = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
    int wrong = 0;
    auto x = tensor_of<std::int64_t>(dev, {0});
    auto* value = x.mut().data<std::int64_t>();
    for (std::int64_t round = 0; round < 2000; ++round) {
      *value = round * round + world.rank();
      world.all_reduce(dev, x.mut()).wait();
      wrong += *value != n * round * round + n * (n - 1) / 2;
      if (round % 400 == 100 * world.rank()) sleep_ms(0.1);
    }
    return wrong;
  });
  for (const int wrong : broken) CHECK(wrong == 0);
}

TEST_CASE("threads: reduce_scatter, all_gather and all_to_all") {
  for (const int n : {1, 2, 3, 4, 8})
    for_every_type([&]<class T>(Tag<T>) {
      for (const std::int64_t block : {0, 1, 300}) {
        struct Results {
          std::vector<T> scattered, gathered, exchanged;
        };
        const auto got = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
          const auto whole = tensor_of(dev, mine<T>(world, n * block));
          Tensor<Cpu> part(dev, dtype_of<T>(), {block});
          Tensor<Cpu> all(dev, dtype_of<T>(), {n, block});
          Tensor<Cpu> exchanged(dev, dtype_of<T>(), {n, block});
          world.reduce_scatter(dev, whole, part.mut()).wait();
          const auto sent = tensor_of(dev, mine<T>(world, block));
          world.all_gather(dev, sent, all.mut()).wait();
          world.all_to_all(dev, whole, exchanged.mut()).wait();
          return Results{part.template to_host<T>(dev), all.template to_host<T>(dev),
                         exchanged.template to_host<T>(dev)};
        });
        for (int rank = 0; rank < n; ++rank) {
          const auto& of = got[static_cast<std::size_t>(rank)];
          REQUIRE(same_bits(of.scattered, generate<T>(block, [&](auto i) {
                              return n * (n - 1) / 2 + n * value(0, rank * block + i);
                            })));
          REQUIRE(same_bits(of.gathered, generate<T>(n * block, [&](auto i) {
                              return value(static_cast<int>(i / block), i % block);
                            })));
          REQUIRE(same_bits(of.exchanged, generate<T>(n * block, [&](auto i) {
                              return value(static_cast<int>(i / block), rank * block + i % block);
                            })));
        }
      }
    });
}

TEST_CASE("threads: broadcast from every root") {
  for (const int n : {2, 3, 8})
    for (int root = 0; root < n; ++root)
      for (const auto count : counts) {
        const auto got = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
          auto x = tensor_of(dev, mine<float>(world, count));
          world.broadcast(dev, x.mut(), root).wait();
          return x.to_host<float>(dev);
        });
        const auto expected = generate<float>(count, [&](auto i) { return value(root, i); });
        for (const auto& result : got) REQUIRE(same_bits(result, expected));
      }
}

TEST_CASE("threads: a sum has the bits of the order of the ranks, whoever comes first") {
  const int n = 5;
  const auto element = [](int rank, std::int64_t i) {
    return RandomStream{.seed = 5, .use = static_cast<std::uint32_t>(rank)}.normal(
        static_cast<std::uint64_t>(i));
  };
  for (const std::int64_t count : {3, 100, 4000})
    for (int last = 0; last < n; ++last) {
      const auto got = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
        auto x = tensor_of(
            dev, generate<float>(count, [&](auto i) { return element(world.rank(), i); }));
        if (world.rank() == last) sleep_ms(2);
        world.all_reduce(dev, x.mut()).wait();
        return x.to_host<float>(dev);
      });
      auto expected = generate<float>(count, [&](auto i) { return element(0, i); });
      for (int rank = 1; rank < n; ++rank)
        for (std::int64_t i = 0; i < count; ++i)
          expected[static_cast<std::size_t>(i)] += static_cast<float>(element(rank, i));
      for (const auto& result : got) REQUIRE(same_bits(result, expected));
    }
}

TEST_CASE("threads: laws of scatter, gather and exchange, in place too") {
  const int n = 4;
  const std::int64_t block = 70;
  const auto broken = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
    std::string text;
    const auto start = mine<double>(world, n * block);
    const auto whole = tensor_of(dev, start);
    auto summed = clone(dev, whole.view());
    world.all_reduce(dev, summed.mut()).wait();

    auto x = clone(dev, whole.view());  // scatter, then gather, each in place: an all_reduce
    const auto own = x.mut().as({n, block}).slice(world.rank(), world.rank() + 1);
    world.reduce_scatter(dev, x, own).wait();
    world.all_gather(dev, own, x.mut()).wait();
    if (x.to_host<double>(dev) != summed.to_host<double>(dev)) text += "all_reduce ";

    Tensor<Cpu> there(dev, DType::f64, {n, block});
    Tensor<Cpu> back(dev, DType::f64, {n, block});
    world.all_to_all(dev, whole, there.mut()).wait();
    world.all_to_all(dev, there, back.mut()).wait();
    if (back.to_host<double>(dev) != start) text += "all_to_all ";

    // Every rank gathers the same: their sum over n ranks, scattered, is n times my part.
    const auto part = tensor_of(dev, mine<double>(world, block));
    Tensor<Cpu> all(dev, DType::f64, {n, block});
    Tensor<Cpu> again(dev, DType::f64, {block});
    world.all_gather(dev, part, all.mut()).wait();
    world.reduce_scatter(dev, all, again.mut()).wait();
    for (std::int64_t i = 0; i < block; ++i)
      if (again.view().data<double>()[i] != n * part.view().data<double>()[i]) text += "gather ";
    return text;
  });
  for (const auto& text : broken) CHECK(text == "");
}

TEST_CASE("threads: messages arrive whole, in order, and from whom they should") {
  for (const int n : {2, 3, 4, 8}) {
    const auto broken = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
      int wrong = 0;
      const int next = (world.rank() + 1) % n;
      const int previous = (world.rank() + n - 1) % n;
      for (std::int64_t round = 0; round < 50; ++round) {
        const auto count = round * 7 % 40;  // also empty ones
        const auto sent = generate<std::int64_t>(
            count, [&](auto i) { return world.rank() * 1000 + round * 50 + i; });
        world.send(dev, tensor_of(dev, sent), next);
        auto got = Tensor<Cpu>(dev, DType::i64, {count});
        world.recv(dev, got.mut(), previous);
        wrong += got.to_host<std::int64_t>(dev) != generate<std::int64_t>(count, [&](auto i) {
                   return previous * 1000 + round * 50 + i;
                 });
      }
      return wrong;
    });
    for (const int wrong : broken) CHECK(wrong == 0);
  }
}

TEST_CASE("threads: a send waits when the edge is full, and not before") {
  std::atomic<int> sent = 0;
  const auto results = on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    const int capacity = world.send_capacity();
    int early = 0;
    auto x = tensor_of<std::int32_t>(dev, {0});
    if (world.rank() == 0) {
      for (int message = 0; message <= capacity; ++message) {
        x.mut().data<std::int32_t>()[0] = message;  // a send has its own copy
        world.send(dev, x, 1);
        ++sent;
      }
    } else {
      while (sent < capacity) sleep_ms(1);
      sleep_ms(30);
      early = sent - capacity;
      for (int message = 0; message <= capacity; ++message) {
        world.recv(dev, x.mut(), 0);
        early += x.view().data<std::int32_t>()[0] != message;
      }
    }
    return early;
  });
  CHECK(results[1] == 0);
  CHECK(sent == ThreadGroup::capacity + 1);
}

TEST_CASE("threads: what one rank alone gets wrong") {
  auto comms = ThreadComm::world_of(2, 0);
  Cpu dev;
  auto x = Tensor<Cpu>::zeros(dev, DType::f32, {6});
  auto y = Tensor<Cpu>::zeros(dev, DType::f32, {5});
  auto& world = comms[0];
  CHECK(message_of([&] { world.reduce_scatter(dev, x, y.mut()); }) ==
        "reduce_scatter: f32 [6] is not 2 blocks of f32 [5]");
  CHECK(message_of([&] { world.all_gather(dev, x, y.mut()); }) ==
        "all_gather: f32 [5] is not 2 blocks of f32 [6]");
  CHECK(contains(message_of([&] { world.all_to_all(dev, y, y.mut()); }), "2 equal blocks each"));
  CHECK(contains(message_of([&] { world.all_to_all(dev, x, x.mut()); }), "in place"));
  CHECK(contains(message_of([&] { world.broadcast(dev, x.mut(), 2); }), "no rank 2"));
  CHECK(contains(message_of([&] { world.broadcast(dev, x.mut(), -1); }), "no rank -1"));
  CHECK(contains(message_of([&] { world.send(dev, x, 0); }), "cannot send to rank 0"));
  CHECK(contains(message_of([&] { world.send(dev, x, 2); }), "cannot send to rank 2"));
  CHECK(contains(message_of([&] { world.recv(dev, x.mut(), -1); }), "cannot receive from rank -1"));
  CHECK(contains(message_of([&] { (void)ThreadComm::world_of(0, 1); }), "at least 1 rank"));
  CHECK(contains(message_of([&] { (void)ThreadComm::world_of(1, -1); }), "time limit"));
  (void)ThreadComm::world_of(2, 1e300);  // for ever
}

TEST_CASE("threads: a message of another kind is refused, and is still there") {
  const auto messages = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = tensor_of<float>(dev, {1, 2, 3});
    if (world.rank() == 0) {
      world.send(dev, x, 1);
      return std::string();
    }
    auto shorter = tensor_of<float>(dev, {0, 0});
    auto other = tensor_of<std::int32_t>(dev, {0, 0, 0});
    auto text = message_of([&] { world.recv(dev, shorter.mut(), 0); });
    append_text(text, "; " + message_of([&] { world.recv(dev, other.mut(), 0); }));
    auto right = tensor_of<float>(dev, {0, 0, 0});
    world.recv(dev, right.mut(), 0);
    return right.to_host<float>(dev) == x.to_host<float>(dev) ? text : "lost";
  });
  CHECK(contains(messages[1], "rank 1 expects 2 f32, rank 0 sent 3 f32 at threads.cpp:"));
  CHECK(contains(messages[1], "rank 1 expects 3 i32, rank 0 sent 3 f32"));
}

TEST_CASE("threads: a hundred rounds of everything") {
  const int n = 4;
  const auto broken = on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
    int wrong = 0;
    const RandomStream dice{.seed = 12};
    for (std::uint64_t round = 0; round < 100; ++round) {
      const std::int64_t count = dice.below(600, 3 * round);
      auto group = world.split(world.rank() % 2, -world.rank());
      auto x = tensor_of(dev, generate<double>(count, [&](auto i) { return world.rank() + i; }));
      auto y = clone(dev, x.view());
      Tensor<Cpu> all(dev, DType::f64, {group.size(), count});
      group.all_reduce(dev, x.mut()).wait();
      group.all_gather(dev, y, all.mut()).wait();
      world.all_reduce(dev, y.mut(), Reduce::max).wait();
      world.send(dev, y, (world.rank() + 1) % n);
      world.recv(dev, y.mut(), (world.rank() + n - 1) % n);
      const int odd = world.rank() % 2;
      for (std::int64_t i = 0; i < count; ++i) {
        wrong += x.view().data<double>()[i] != static_cast<double>(2 * odd + 2 + 2 * i);
        wrong += y.view().data<double>()[i] != static_cast<double>(n - 1 + i);
        // The key put the higher rank first.
        wrong += all.view().data<double>()[i] != static_cast<double>(odd + 2 + i);
      }
    }
    return wrong;
  });
  for (const int wrong : broken) CHECK(wrong == 0);
}

}  // namespace
