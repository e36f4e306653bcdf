#include <dhp/comm/rank_list.hpp>
#include <tests/support/test.hpp>

TEST_CASE("rank list: ranks are listed in words, and long lists are shortened") {
  CHECK(dhp::rank_list({}) == "no rank");
  CHECK(dhp::rank_list({7}) == "rank 7");
  CHECK(dhp::rank_list({0, 3}) == "ranks 0 and 3");
  CHECK(dhp::rank_list({0, 1, 3}) == "ranks 0, 1 and 3");
  std::set<int> many;
  for (int rank = 0; rank < 8; ++rank) many.insert(rank);
  CHECK(dhp::rank_list(many) == "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  for (int rank = 8; rank < 128; ++rank) many.insert(rank);
  CHECK(dhp::rank_list(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 120 more");
}
