// The permutation: a bijection for every size, random enough for a shuffle.
#include <dhp/data/permutation.hpp>
#include <tests/support/test.hpp>

TEST_CASE("permutation: is a bijection for any size") {
  for (const std::int64_t size : {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 127, 1000, 4097}) {
    const dhp::Permutation order(size, 3, 1);
    std::vector<int> hits(static_cast<std::size_t>(size), 0);
    for (std::int64_t place = 0; place < size; ++place) {
      const auto element = order(place);
      REQUIRE(element >= 0);
      REQUIRE(element < size);
      ++hits[static_cast<std::size_t>(element)];
    }
    for (const int hit : hits) CHECK(hit == 1);
    CHECK_THROWS_AS((void)order(size), dhp::Error);
    CHECK_THROWS_AS((void)order(-1), dhp::Error);
  }
}

// A checkpoint of an earlier version resumes in the middle of an epoch, so no version may change the order of a seed.
TEST_CASE("permutation: the order of a seed and an epoch stays as it is") {
  std::vector<std::int64_t> found;
  const dhp::Permutation order(11, 3, 1);
  for (std::int64_t place = 0; place < 11; ++place) found.push_back(order(place));
  CHECK(found == std::vector<std::int64_t>{3, 9, 5, 10, 8, 0, 6, 4, 1, 2, 7});
  CHECK(dhp::Permutation(1 << 20, 3, 1)(7) == 921387);
}

TEST_CASE("permutation: every element is equally likely at every place") {
  constexpr int size = 12;
  constexpr int epochs = 6000;
  std::array<std::array<int, size>, size> times{};
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const dhp::Permutation order(size, 12, epoch);
    for (int place = 0; place < size; ++place)
      ++times[static_cast<std::size_t>(place)][static_cast<std::size_t>(order(place))];
  }
  double chi2 = 0;
  for (const auto& row : times)
    for (const int time : row) chi2 += (time - 500.0) * (time - 500.0) / 500.0;
  CHECK(chi2 < 121 + 5 * 15.6);  // 121 degrees of freedom, five standard deviations
}

TEST_CASE("permutation: neighbors are rarely adjacent") {
  const dhp::Permutation order(60000, 5, 0);
  int neighbors = 0;
  for (std::int64_t place = 1; place < 60000; ++place)
    if (order(place) == order(place - 1) + 1) ++neighbors;
  CHECK(neighbors < 10);  // the expected number is one
}
