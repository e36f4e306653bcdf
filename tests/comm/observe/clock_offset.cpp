#include <dhp/comm/observe/clock_offset.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace {

using namespace tests;

TEST_CASE("clock_offset: each rank finds how far it is ahead of rank 0") {
  const auto start = std::chrono::steady_clock::now();
  for (const int ranks : {1, 2, 4}) {
    const auto found = on_ranks(ranks, [&](Comm<Cpu>& world, Cpu& dev) {
      return clock_offset(dev, world, [&] { return seconds_since(start) + 100.0 * world.rank(); });
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& of = found[static_cast<std::size_t>(rank)];
      CHECK(std::abs(of.ahead_s - 100.0 * rank) <= of.round_trip_s / 2 + 1e-9);
      CHECK(of.round_trip_s < 1);
    }
    CHECK(found[0].round_trip_s == 0);
  }
}

TEST_CASE("clock_offset: of several round trips the shortest counts") {
  const auto found = on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    int asked = 0;
    return clock_offset(dev, world, [&] {
      if (world.rank() == 0) return 1000.0;
      // Rank 1 asks twice a trip: the first trips take long, the third is quick.
      const double trips_s[] = {0, 9, 100, 107, 200, 201, 300, 308};
      return asked < 8 ? trips_s[asked++] : 400.0 + 10 * asked++;
    });
  });
  CHECK(found[1].round_trip_s == 1);
  CHECK(found[1].ahead_s == 200.5 - 1000);
}

}  // namespace
