#include <examples/doctor/outliers.hpp>
#include <tests/support/test.hpp>

using namespace examples::doctor;

TEST_CASE("outliers: a rate is compared with the median of the others of its kind") {
  // There are two kinds of hosts, one ten times as fast as the other. Only rank 2 is slow.
  const auto found = slowdowns({10, 11, 2, 12, 100, 101}, {"a", "a", "a", "a", "b", "b"});
  REQUIRE(found.size() == 6);
  CHECK(found[2].others == 11);
  CHECK(found[2].ratio == 5.5);
  for (const std::size_t rank : {0, 1, 3, 4, 5}) CHECK(found[rank].ratio < 1.2);
  CHECK(found[3].others == 10);
}

TEST_CASE("outliers: one or two rates and missing rates are handled") {
  const auto two = slowdowns({10, 5}, {"a", "a"});
  REQUIRE(two.size() == 2);
  CHECK(two[0].ratio == 0.5);
  CHECK(two[1].ratio == 2);
  CHECK(slowdowns({10, 1}, {"a", "b"}).empty());
  const auto found = slowdowns({10, 0, not_known, 10}, {"a", "a", "a", "a"});
  REQUIRE(found.size() == 3);
  CHECK(std::isinf(found[1].ratio));
  CHECK(found[2].index == 3);
}
