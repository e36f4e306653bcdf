#include <dhp/comm/clock_offset.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace tests;

TEST_CASE("clock_offset: each rank finds how far it is ahead of rank 0") {
  const auto start = std::chrono::steady_clock::now();
  for (const int ranks : {1, 2, 4}) {
    const auto found = on_ranks(ranks, [&](Comm<Cpu>& world, Cpu& dev) {
      return clock_offset_s(dev, world,
                            [&] { return seconds_since(start) + 100.0 * world.rank(); });
    });
    for (int rank = 0; rank < ranks; ++rank)
      CHECK(std::abs(found[static_cast<std::size_t>(rank)] - 100.0 * rank) < 1);
  }
}

}  // namespace
