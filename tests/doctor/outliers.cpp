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

namespace {

std::vector<Fact> facts(const char* dhp, const char* kernel) {
  return {{"dhp", dhp, Verdict::failed}, {"kernel", kernel, Verdict::warning}};
}

}  // namespace

TEST_CASE("differences: the minority differs from the majority, also if it has rank 0") {
  CHECK(differences({facts("1", "6"), facts("1", "6")}, {"a", "b"}).empty());
  const auto found = differences(
      {facts("2", "6"), facts("1", "6"), facts("1", "6"), facts("1", "5")}, {"a", "b", "b", "c"});
  REQUIRE(found.size() == 2);
  CHECK(found[0].verdict == Verdict::failed);
  CHECK(found[0].ranks == std::set<int>{0});
  CHECK(found[0].sentence ==
        "rank 0 (host a): dhp is 2, while ranks 1, 2 and 3 have 1; install and start the same on "
        "all hosts");
  CHECK(found[1].verdict == Verdict::warning);
  CHECK(found[1].ranks == std::set<int>{3});
}

TEST_CASE("differences: of two ranks the first one is right; a missing fact is another value") {
  const auto two = differences({facts("1", "6"), facts("1", "5")}, {"a", "b"});
  REQUIRE(two.size() == 1);
  CHECK(two[0].ranks == std::set<int>{1});
  auto fewer = facts("1", "6");
  fewer.pop_back();
  const auto found = differences({facts("1", "6"), facts("1", "6"), facts("1", "6"), fewer, fewer},
                                 {"a", "a", "a", "b", "c"});
  REQUIRE(found.size() == 1);
  CHECK(found[0].sentence.starts_with("ranks 3 and 4 (2 hosts): kernel is ?"));
}
