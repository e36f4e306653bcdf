#include <dhp/comm/comm.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

TEST_CASE("comm: a default one is a group of one, and so is what was moved from") {
  Comm<Cpu> first;
  CHECK(first.size() == 1);
  CHECK(first.rank() == 0);
  Comm<Cpu> second = std::move(first);
  CHECK(first.size() == 1);  // NOLINT: that is the point
  first.barrier();
  second.barrier();
}

TEST_CASE("comm: copies are one communicator") {
  const auto sums = on_ranks(3, [](Comm<Cpu>& world, Cpu& dev) {
    auto copy = world;
    auto x = tensor_of<std::int64_t>(dev, {world.rank() + 1});
    (world.rank() == 1 ? copy : world).all_reduce(dev, x.mut()).wait();
    return x.to_host<std::int64_t>(dev)[0];
  });
  for (const auto sum : sums) CHECK(sum == 6);
}

TEST_CASE("comm: a part of one rank is a group of one") {
  const auto results = on_ranks(3, [](Comm<Cpu>& world, Cpu& dev) {
    auto alone = world.split(world.rank(), 0);
    auto none = world.split(-1, 0);  // nobody joins: still a group of one each
    auto x = tensor_of<std::int64_t>(dev, {world.rank()});
    alone.all_reduce(dev, x.mut()).wait();
    none.all_reduce(dev, x.mut()).wait();
    return std::vector<std::int64_t>{alone.size(), none.size(), x.to_host<std::int64_t>(dev)[0]};
  });
  for (std::int64_t rank = 0; rank < 3; ++rank)
    CHECK(results[static_cast<std::size_t>(rank)] == std::vector<std::int64_t>{1, 1, rank});
}

}  // namespace
