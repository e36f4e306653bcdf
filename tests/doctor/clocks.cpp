#include <examples/doctor/clocks.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;

namespace {

std::vector<Problem> judged(const std::vector<double>& ahead_s, double round_trip_s = 0.001) {
  return judge_clocks(ahead_s, std::vector<double>(ahead_s.size(), round_trip_s), {0.1, 10},
                      [](int rank) { return dhp::concat("rank ", rank); });
}

}  // namespace

TEST_CASE("clocks: who is off is named, if it is rank 0 or another") {
  CHECK(judged({0, 0.05, -0.05, 0}).empty());
  const auto found = judged({0, 0.2, 0, 0});
  REQUIRE(found.size() == 1);
  CHECK(found[0].verdict == Verdict::warning);
  CHECK(found[0].sentence.starts_with("the clock of rank 1 is 0.200 s ahead of the median of all"));
  const auto zero = judged({0, 20, 20});
  REQUIRE(zero.size() == 1);
  CHECK(zero[0].verdict == Verdict::failed);
  CHECK(zero[0].ranks == std::set<int>{0});
  CHECK(zero[0].sentence.starts_with("the clock of rank 0 is 20 s behind"));
}

TEST_CASE("clocks: of two nobody can say which is right") {
  const auto found = judged({0, 0.3});
  REQUIRE(found.size() == 1);
  CHECK(found[0].ranks == std::set<int>{0, 1});
  CHECK(found[0].sentence.find("nobody can say which is right") != std::string::npos);
}

TEST_CASE("clocks: what may come from a slow answer is no finding") {
  CHECK(judged({0, 0.2, 0}, 0.3).empty());
}
