#include <examples/doctor/tournament.hpp>

#include <doctest/doctest.h>

#include <set>
#include <utility>

using namespace examples::doctor;

TEST_CASE("tournament: every two ranks meet once, and nobody meets two at a time") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < rounds_of(ranks); ++round) {
      int pauses = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int partner = partner_of(rank, round, ranks);
        pauses += partner == -1;
        if (partner == -1) continue;
        REQUIRE(partner != rank);
        REQUIRE(partner < ranks);
        REQUIRE(partner_of(partner, round, ranks) == rank);
        if (rank < partner) CHECK(met.insert({rank, partner}).second);
      }
      CHECK(pauses == ranks % 2);
    }
    CHECK(met.size() == static_cast<std::size_t>(ranks * (ranks - 1) / 2));
  }
}
