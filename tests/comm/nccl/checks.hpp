// What a world on GPUs must do, whoever its ranks are: each of these returns what is wrong.
#pragma once

#include <dhp/comm/nccl/nccl_comm.hpp>
#include <dhp/comm/progress.hpp>
#include <tests/comm/ranks.hpp>

namespace tests {

using Values = std::vector<int>;  // whole numbers, exact in every type
inline Tensor<Cuda> on_gpu(Cuda& dev, DType dtype, const Values& values) {
  Tensor<Cuda> made(dev, dtype, {static_cast<std::int64_t>(values.size())});
  visit_any(dtype, [&]<class T>(Tag<T>) {
    const auto typed = generate<T>(
        made.count(), [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
    dev.copy_from_host(made.mut().bytes(), reinterpret_cast<const std::byte*>(typed.data()),
                       made.size_bytes());
  });
  return made;
}
inline bool holds(Cuda& dev, const Tensor<Cuda>& got, const Values& expected) {
  Values values;
  visit_any(got.dtype(), [&]<class T>(Tag<T>) {
    for (const T each : got.to_host<T>(dev)) values.push_back(static_cast<int>(each));
  });
  return values == expected;
}
// What rank r has at i: sums of a few are exact.
inline int value(std::int64_t i, int r) { return static_cast<int>((i * 5 + r * 3) % 7) + r % 2; }
template <class F>
Values values_of(std::int64_t count, F f) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(f(i));
  return values;
}

// Every collective against the same sums by hand; what is wrong.
inline std::string wrong_in(Comm<Cuda>& group, Cuda& dev, DType dtype, std::int64_t count) {
  const int n = group.size(), me = group.rank();
  const auto mine = values_of(count, [&](auto i) { return value(i, me); });
  const auto combined = [&](int (*combine)(int, int), std::int64_t first) {
    return values_of(count, [&](auto i) {
      int total = value(i + first, 0);
      for (int r = 1; r < n; ++r) total = combine(total, value(i + first, r));
      return total;
    });
  };
  const auto sum = [](int left, int right) { return left + right; };
  const auto max = [](int left, int right) { return std::max(left, right); };
  const auto min = [](int left, int right) { return std::min(left, right); };
  std::string wrong;
  const auto expect = [&](const Tensor<Cuda>& got, const Values& expected, const char* what) {
    if (!holds(dev, got, expected))
      dhp::detail::append_text(wrong, concat(what, " of ", count, " ", dtype, "; "));
  };
  auto x = on_gpu(dev, dtype, mine);
  group.all_reduce(dev, x.mut()).wait();
  expect(x, combined(sum, 0), "sum");
  x = on_gpu(dev, dtype, mine);
  group.all_reduce(dev, x.mut(), Reduce::max).wait();
  expect(x, combined(max, 0), "max");
  x = on_gpu(dev, dtype, mine);
  group.all_reduce(dev, x.mut(), Reduce::min).wait(dev);
  expect(x, combined(min, 0), "min");
  x = on_gpu(dev, dtype, mine);
  group.broadcast(dev, x.mut(), n - 1).wait();
  expect(x, values_of(count, [&](auto i) { return value(i, n - 1); }), "broadcast");

  x = on_gpu(dev, dtype, mine);
  auto all = Tensor<Cuda>::zeros(dev, dtype, {count * n});
  group.all_gather(dev, x, all.mut()).wait();
  const auto gathered = [&](auto i) { return value(i % count, static_cast<int>(i / count)); };
  expect(all, values_of(count * n, gathered), "all_gather");
  const auto wide = on_gpu(dev, dtype, values_of(count * n, [&](auto i) { return value(i, me); }));
  auto block = Tensor<Cuda>::zeros(dev, dtype, {count});
  group.reduce_scatter(dev, wide, block.mut()).wait();
  expect(block, combined(sum, me * count), "reduce_scatter");
  group.all_to_all(dev, wide, all.mut()).wait();
  const auto exchanged = [&](auto i) {
    return value(i % count + me * count, static_cast<int>(i / count));
  };
  expect(all, values_of(count * n, exchanged), "all_to_all");
  return wrong;
}
inline std::string wrong_in_any_type(Comm<Cuda>& group, Cuda& dev, std::int64_t count) {
  std::string wrong;
  for (const auto dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    wrong += wrong_in(group, dev, dtype, count);
  return wrong;
}

// Parts of the world, ordered by key, and ranks of no part.
inline std::string wrong_parts(Comm<Cuda>& world, Cuda& dev) {
  const int n = world.size(), me = world.rank();
  std::string wrong;
  const auto look = [&](Comm<Cuda> part, const char* name, int size, int rank) {
    if (part.size() != size || part.rank() != rank)
      dhp::detail::append_text(wrong,
                               concat(name, ": rank ", part.rank(), " of ", part.size(), "; "));
    wrong += wrong_in(part, dev, DType::f32, 100);
  };
  look(world.split(0, -me), "reversed", n, n - 1 - me);
  look(world.split(me % 2, me), "halves", (n + 1 - me % 2) / 2, me / 2);
  look(world.split(me == 0 ? -1 : 3, me), "most", me == 0 ? 1 : n - 1, me == 0 ? 0 : me - 1);
  return wrong;
}

// As many messages as the capacity go around the ring, both ways, before any is received.
inline int wrong_messages(Comm<Cuda>& world, Cuda& dev) {
  const int n = world.size(), me = world.rank();
  auto onward = world.split(0, me), back = world.split(0, me);
  const int next = (me + 1) % n, last = (me + n - 1) % n;
  int wrong = 0;
  for (int round = 0; round < 3; ++round) {
    std::int64_t size = 1;
    for (int k = 0; k < onward.send_capacity(); ++k, size *= 40) {
      auto x =
          on_gpu(dev, DType::f32, values_of(size, [&](auto i) { return value(i, me) + 8 * k; }));
      onward.send(dev, x.share(), next);
      back.send(dev, std::move(x), last);  // kept until it has been received
    }
    size = 1;
    for (int k = 0; k < onward.send_capacity(); ++k, size *= 40) {
      auto from_last = Tensor<Cuda>::zeros(dev, DType::f32, {size});
      auto from_next = Tensor<Cuda>::zeros(dev, DType::f32, {size});
      back.recv(dev, from_next.mut(), next);
      onward.recv(dev, from_last.mut(), last);
      const auto sent_by = [&](int rank) {
        return values_of(size, [&](auto i) { return value(i, rank) + 8 * k; });
      };
      wrong += !holds(dev, from_last, sent_by(last));
      wrong += !holds(dev, from_next, sent_by(next));
    }
  }
  return wrong;
}

// Collectives of one communicator beside those of another.
inline int wrong_beside_others(Comm<Cuda>& world, Cuda& dev) {
  Progress<Cuda> progress(world);
  int wrong = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<Tensor<Cuda>> buckets;
    std::vector<Event<Cuda>> events;
    for (const std::size_t size : {3u, 50000u, 400u}) {
      buckets.push_back(on_gpu(dev, DType::f32, Values(size, 1)));
      events.push_back(progress.start(dev, Collective<Cuda>::all_reduce(buckets.back().mut())));
      auto x = on_gpu(dev, DType::f32, {2});
      world.all_reduce(dev, x.mut()).wait();
      wrong += !holds(dev, x, {2 * world.size()});
    }
    for (auto& event : events) event.wait(dev);
    for (auto& bucket : buckets)
      wrong += !holds(dev, bucket, Values(static_cast<std::size_t>(bucket.count()), world.size()));
  }
  return wrong;
}

}  // namespace tests
