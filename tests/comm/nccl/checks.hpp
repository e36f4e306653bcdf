// Checks for any world of GPU ranks. Each returns its errors, as text or as a number.
#pragma once

#include <dhp/comm/nccl/nccl_comm.hpp>
#include <dhp/comm/progress.hpp>
#include <tests/comm/collectives.hpp>

namespace tests {

using Values = std::vector<int>;  // whole numbers, exact in every type
inline bool holds(Cuda& dev, const Tensor<Cuda>& got, const Values& expected) {
  Values values;
  visit_any(got.dtype(), [&]<class T>(TypeTag<T>) {
    for (const T each : got.to_host<T>(dev)) values.push_back(static_cast<int>(each));
  });
  return values == expected;
}
// Splits the world into parts, ordered by key, some of which leave out ranks; returns what is wrong in them.
inline std::string wrong_parts(Comm<Cuda>& world, Cuda& dev) {
  const int n = world.size(), me = world.rank();
  std::string wrong;
  const auto look = [&](Comm<Cuda> part, const char* name, int size, int rank) {
    if (part.size() != size || part.rank() != rank)
      dhp::detail::append_text(wrong,
                               concat(name, ": rank ", part.rank(), " of ", part.size(), "; "));
    wrong += wrong_collectives(part, dev, {100}, {DType::f32});
  };
  look(world.split(0, -me), "reversed", n, n - 1 - me);
  look(world.split(me % 2, me), "halves", (n + 1 - me % 2) / 2, me / 2);
  look(world.split(me == 0 ? -1 : 3, me), "most", me == 0 ? 1 : n - 1, me == 0 ? 0 : me - 1);
  return wrong;
}

// Each rank sends as many messages as the capacity to both neighbors on the ring, before it receives any.
inline int wrong_ring(Comm<Cuda>& world, Cuda& dev) {
  const int n = world.size(), me = world.rank();
  auto onward = world.split(0, me), back = world.split(0, me);
  const int next = (me + 1) % n, last = (me + n - 1) % n;
  const auto sent_by = [](int rank, std::int64_t size, int k) {
    return generate<float>(size, [&](auto i) { return collective_value(rank, i) + 8 * k; });
  };
  int wrong = 0;
  for (int round = 0; round < 3; ++round) {
    std::int64_t size = 1;
    for (int k = 0; k < onward.send_capacity(); ++k, size *= 40) {
      auto x = tensor_of(dev, sent_by(me, size, k));
      onward.send(dev, x.share(), next);
      back.send(dev, std::move(x), last);  // kept until received
    }
    size = 1;
    for (int k = 0; k < onward.send_capacity(); ++k, size *= 40) {
      auto from_last = Tensor<Cuda>::zeros(dev, DType::f32, {size});
      auto from_next = Tensor<Cuda>::zeros(dev, DType::f32, {size});
      back.recv(dev, from_next.mut(), next);
      onward.recv(dev, from_last.mut(), last);
      wrong += from_last.to_host<float>(dev) != sent_by(last, size, k);
      wrong += from_next.to_host<float>(dev) != sent_by(next, size, k);
    }
  }
  return wrong;
}

// Collectives of two communicators that run at the same time.
inline int wrong_beside_others(Comm<Cuda>& world, Cuda& dev) {
  Progress<Cuda> progress(world);
  int wrong = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<Tensor<Cuda>> buckets;
    std::vector<Event<Cuda>> events;
    for (const std::size_t size : {3u, 50000u, 400u}) {
      buckets.push_back(tensor_of(dev, std::vector<float>(size, 1)));
      events.push_back(progress.start(dev, Collective<Cuda>::all_reduce(buckets.back().mut())));
      auto x = tensor_of<float>(dev, {2});
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
