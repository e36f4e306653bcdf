// The checks that every communicator between ranks on the host must pass, over any transport: all_checks().
#pragma once

#include <tests/comm/ranks.hpp>

namespace tests {

// Small integers, so that every sum is exact in every type; the largest may be on any rank.
inline std::int64_t collective_value(int rank, std::int64_t i) {
  return (i * 5 + rank * 3) % 7 + rank % 2;
}
inline std::int64_t reduced_value(int ranks, std::int64_t i, Reduce reduce = Reduce::sum) {
  auto all = collective_value(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto other = collective_value(rank, i);
    if (reduce == Reduce::sum) all += other;
    else all = reduce == Reduce::max ? std::max(all, other) : std::min(all, other);
  }
  return all;
}
template <class T>
std::vector<T> brought_by(int rank, std::int64_t count) {
  return generate<T>(count, [&](auto i) { return collective_value(rank, i); });
}

// Every collective on any device, with `count` elements in all or per rank.
template <class T, class Dev>
std::string wrong_collectives_of(Comm<Dev>& world, Dev& dev, std::int64_t count) {
  const int n = world.size(), me = world.rank();
  std::string wrong;
  const auto expect = [&](const char* what, const Tensor<Dev>& got, auto value) {
    if (!same_bits(got.template to_host<T>(dev), generate<T>(got.count(), value)))
      dhp::detail::append_text(wrong, concat(what, " of ", count, " ", dtype_of<T>(), "; "));
  };
  for (const auto reduce : {Reduce::sum, Reduce::max, Reduce::min}) {
    auto x = tensor_of(dev, brought_by<T>(me, count));
    world.all_reduce(dev, x.mut(), reduce).wait(dev);
    expect(name_of(reduce), x, [&](auto i) { return reduced_value(n, i, reduce); });
  }
  for (int root = 0; root < n; ++root) {
    auto x = tensor_of(dev, brought_by<T>(me, count));
    world.broadcast(dev, x.mut(), root).wait();
    expect("broadcast", x, [&](auto i) { return collective_value(root, i); });
  }
  const auto one = tensor_of(dev, brought_by<T>(me, count)),
             whole = tensor_of(dev, brought_by<T>(me, n * count));
  Tensor<Dev> block(dev, dtype_of<T>(), {count}), all(dev, dtype_of<T>(), {n, count});
  world.all_gather(dev, one, all.mut()).wait();
  expect("all_gather", all,
         [&](auto i) { return collective_value(static_cast<int>(i / count), i % count); });
  world.reduce_scatter(dev, whole, block.mut()).wait();
  expect("reduce_scatter", block, [&](auto i) { return reduced_value(n, me * count + i); });
  world.all_to_all(dev, whole, all.mut()).wait();
  expect("all_to_all", all, [&](auto i) {
    return collective_value(static_cast<int>(i / count), me * count + i % count);
  });
  world.shift(dev, one, block.mut()).wait();
  expect("shift", block, [&](auto i) { return collective_value((me + n - 1) % n, i); });
  return wrong;
}
template <class Dev>
std::string wrong_collectives(Comm<Dev>& world, Dev& dev, const std::vector<std::int64_t>& counts,
                              const std::vector<DType>& types = {
                                  DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64,
                                  DType::i32, DType::u8}) {
  std::string wrong;
  for (const auto type : types)
    for (const auto count : counts)
      visit_any(type, [&]<class T>(TypeTag<T>) {
        dhp::detail::append_text(wrong, wrong_collectives_of<T>(world, dev, count));
      });
  return wrong;
}

// Many counts, because the algorithm depends on the number of bytes; all types, because each has its own sum.
inline std::string wrong_of_all_kinds(Comm<Cpu>& world, Cpu& dev) {
  // Counts below and above the sizes at which the algorithm changes; the number of ranks does not divide some of them.
  auto wrong = wrong_collectives(world, dev, {0, 1, 5, 64, 1037, 5001, 20000}, {DType::f32});
  return wrong += wrong_collectives(
             world, dev, {5, 1037},
             {DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8});
}

inline std::string wrong_small_all_reduces(Comm<Cpu>& world, Cpu& dev, std::int64_t rounds) {
  const int n = world.size();
  int wrong = 0;
  auto x = tensor_of<std::int64_t>(dev, {0});
  auto* value = x.mut().data<std::int64_t>();
  for (std::int64_t round = 0; round < rounds; ++round) {
    *value = round * round + world.rank();
    world.all_reduce(dev, x.mut()).wait();
    wrong += *value != n * round * round + n * (n - 1) / 2;
    if (round % 400 == 100 * world.rank()) sleep_ms(0.1);  // ranks get out of step
  }
  return wrong == 0 ? "" : concat(wrong, " sums are wrong");
}

// A sum has the same bits as a sum in the order of the ranks, whichever rank arrives last.
inline std::string wrong_bits(Comm<Cpu>& world, Cpu& dev) {
  const auto element = [](int rank, std::int64_t i) {
    return static_cast<float>(
        RandomStream{.seed = 5, .use = static_cast<std::uint32_t>(rank)}.normal(
            static_cast<std::uint64_t>(i)));
  };
  std::string wrong;
  for (const std::int64_t count : {3, 100, 6000})
    for (int last = 0; last < world.size(); ++last) {
      auto x =
          tensor_of(dev, generate<float>(count, [&](auto i) { return element(world.rank(), i); }));
      if (world.rank() == last) sleep_ms(2);
      world.all_reduce(dev, x.mut()).wait();
      auto expected = generate<float>(count, [&](auto i) { return element(0, i); });
      for (int rank = 1; rank < world.size(); ++rank)
        for (std::int64_t i = 0; i < count; ++i)
          expected[static_cast<std::size_t>(i)] += element(rank, i);
      if (!same_bits(x.to_host<float>(dev), expected))
        dhp::detail::append_text(wrong, concat(count, " with rank ", last, " last; "));
    }
  return wrong;
}

// A reduce_scatter and an all_gather, each in place, give the result of an all_reduce.
inline std::string wrong_laws(Comm<Cpu>& world, Cpu& dev) {
  const int n = world.size();
  const std::int64_t block = 70;
  const auto whole = tensor_of(dev, brought_by<double>(world.rank(), n * block));
  auto summed = clone(dev, whole.view());
  world.all_reduce(dev, summed.mut()).wait();

  auto x = clone(dev, whole.view());
  const auto own = x.mut().as({n, block}).slice(world.rank(), world.rank() + 1);
  world.reduce_scatter(dev, x, own).wait();
  world.all_gather(dev, own, x.mut()).wait();
  return x.to_host<double>(dev) == summed.to_host<double>(dev) ? "" : "all_reduce";
}

inline std::string wrong_messages(Comm<Cpu>& world, Cpu& dev) {
  const int n = world.size();
  int wrong = 0;
  const int next = (world.rank() + 1) % n;
  const int previous = (world.rank() + n - 1) % n;
  for (std::int64_t round = 0; round < 50; ++round) {
    const auto count = round * 7 % 40;  // some messages are empty
    const auto sent =
        generate<std::int64_t>(count, [&](auto i) { return world.rank() * 1000 + round * 50 + i; });
    world.send(dev, tensor_of(dev, sent), next);
    auto got = Tensor<Cpu>(dev, DType::i64, {count});
    for (auto times = round % 3; times > 0; --times)  // a second expect() changes nothing
      world.expect(dev, DType::i64, {count}, previous);
    world.recv(dev, got.mut(), previous);
    wrong += got.to_host<std::int64_t>(dev) != generate<std::int64_t>(count, [&](auto i) {
               return previous * 1000 + round * 50 + i;
             });
  }
  return wrong == 0 ? "" : concat(wrong, " messages are wrong");
}

// Collectives and messages of groups that live for one round.
inline std::string wrong_rounds(Comm<Cpu>& world, Cpu& dev) {
  const int n = world.size();
  if (n != 4) return "";
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
    world.send(dev, std::move(y), (world.rank() + 1) % n);
    y = Tensor<Cpu>(dev, DType::f64, {count});
    world.recv(dev, y.mut(), (world.rank() + n - 1) % n);
    const int odd = world.rank() % 2;
    for (std::int64_t i = 0; i < count; ++i) {
      wrong += x.view().data<double>()[i] != static_cast<double>(2 * odd + 2 + 2 * i);
      wrong += y.view().data<double>()[i] != static_cast<double>(n - 1 + i);
      // The key put the higher rank first.
      wrong += all.view().data<double>()[i] != static_cast<double>(odd + 2 + i);
    }
  }
  return wrong == 0 ? "" : concat(wrong, " values are wrong");
}

// Two ranks: a send blocks only when send_capacity() messages are unreceived. sent: number of rank 0's completed sends.
inline std::string wrong_capacity(Comm<Cpu>& world, Cpu& dev, std::atomic<int>& sent) {
  const int capacity = world.send_capacity();
  if (world.rank() == 0) {
    for (int message = 0; message <= capacity; ++message) {
      world.send(dev, tensor_of<std::int32_t>(dev, {message}), 1);
      ++sent;
    }
    return "";
  }
  while (sent < capacity) sleep_ms(1);
  sleep_ms(30);
  int wrong = sent - capacity;
  auto x = tensor_of<std::int32_t>(dev, {0});
  for (int message = 0; message <= capacity; ++message) {
    world.recv(dev, x.mut(), 0);
    wrong += x.view().data<std::int32_t>()[0] != message;
  }
  return wrong == 0 ? "" : "a send has not waited, or a message is wrong";
}

// All ranks of a world call `wrong`, for each size in `sizes`. It returns what is wrong, "" if nothing is.
struct CollectiveCheck {
  const char* name;
  std::vector<int> sizes;
  std::function<std::string(Comm<Cpu>&, Cpu&)> wrong;
};
inline std::vector<CollectiveCheck> all_checks() {
  const auto back_to_back = [](Comm<Cpu>& world, Cpu& dev) {
    return wrong_small_all_reduces(world, dev, 200);
  };
  return {{"every collective", {2, 3, 4, 8}, wrong_of_all_kinds},
          {"small all_reduces back to back, with ranks a step apart", {4}, back_to_back},
          {"a sum has the bits of the order of the ranks, whoever comes last", {5}, wrong_bits},
          {"scatter and gather in place", {4}, wrong_laws},
          {"messages arrive whole, in order, and from whom they should", {2, 3, 8}, wrong_messages},
          {"a hundred rounds of everything", {4}, wrong_rounds}};
}

/// Throws if a communicator around another one changes a result. Each of two or more ranks calls it.
inline void check_as_before(Comm<Cpu>& world, Cpu& dev) {
  for (const auto check_one : {wrong_of_all_kinds, wrong_messages, wrong_rounds}) {
    const auto wrong = check_one(world, dev);
    check(wrong.empty(), wrong);
  }
}

}  // namespace tests
