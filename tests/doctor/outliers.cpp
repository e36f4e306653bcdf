#include <examples/doctor/outliers.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;

TEST_CASE("outliers: median") {
  CHECK(median({3}) == 3);
  CHECK(median({9, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 9}) == 3);
  CHECK(std::isnan(median({})));
}

TEST_CASE("outliers: a rank is held against the median of the others of its kind") {
  // Two kinds of hosts, one of them ten times as fast: nobody is slow but rank 2.
  const auto found = slowdowns({10, 11, 2, 12, 100, 101}, {"a", "a", "a", "a", "b", "b"});
  REQUIRE(found.size() == 6);
  CHECK(found[2].others == 11);
  CHECK(found[2].ratio == 5.5);
  CHECK(found[2].compared == 3);
  for (const std::size_t rank : {0, 1, 3, 4, 5}) CHECK(found[rank].ratio < 1.2);
}

TEST_CASE("outliers: of two the slower one, of one nobody") {
  const auto two = slowdowns({10, 5}, {"a", "a"});
  REQUIRE(two.size() == 2);
  CHECK(two[0].ratio == 0.5);
  CHECK(two[1].ratio == 2);
  CHECK(two[1].compared == 1);
  CHECK(slowdowns({10}, {"a"}).empty());
  CHECK(slowdowns({10, 1}, {"a", "b"}).empty());
}

TEST_CASE("outliers: a rate of nothing is the slowest, one that is not known is none") {
  const auto found = slowdowns({10, 0, not_known, 10}, {"a", "a", "a", "a"});
  REQUIRE(found.size() == 3);
  CHECK(found[1].index == 1);
  CHECK(std::isinf(found[1].ratio));
  CHECK(found[2].index == 3);
}
