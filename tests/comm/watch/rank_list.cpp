// Ranks in a sentence.
#include <dhp/comm/watch/rank_list.hpp>

#include <doctest/doctest.h>

namespace {

using dhp::rank_list;

TEST_CASE("rank list: ranks read as a person would say them") {
  CHECK(rank_list({}) == "no rank");
  CHECK(rank_list({7}) == "rank 7");
  CHECK(rank_list({0, 3}) == "ranks 0 and 3");
  CHECK(rank_list({0, 1, 3}) == "ranks 0, 1 and 3");
  std::set<int> many;
  for (int rank = 0; rank < 8; ++rank) many.insert(rank);
  CHECK(rank_list(many) == "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  for (int rank = 8; rank < 128; ++rank) many.insert(rank);
  CHECK(rank_list(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 120 more");
}

}  // namespace
