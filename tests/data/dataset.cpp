// Datasets over datasets: each adaptor is a dataset again, a pure function of the index.
#include <dhp/data/dataset.hpp>
#include <tests/support/test.hpp>

namespace {

struct Squares {
  using Sample = std::int64_t;
  std::int64_t count = 10;
  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] Sample get(std::int64_t index) const { return index * index; }
};
struct NoSize {
  using Sample = int;
  [[nodiscard]] Sample get(std::int64_t) const { return 0; }
};
static_assert(dhp::Dataset<Squares>);
static_assert(!dhp::Dataset<NoSize>);
static_assert(dhp::Dataset<decltype(dhp::shuffled(dhp::slice(Squares{}, 0, 1), 1, 0))>);

template <dhp::Dataset D>
std::vector<typename D::Sample> all(const D& data) {
  std::vector<typename D::Sample> samples;
  for (std::int64_t index = 0; index < data.size(); ++index) samples.push_back(data.get(index));
  return samples;
}
using Ints = std::vector<std::int64_t>;

TEST_CASE("dataset: shuffling is a repeatable permutation that depends on epoch and seed") {
  const auto once = all(dhp::shuffled(Squares{.count = 100}, 1, 0));
  CHECK(once == all(dhp::shuffled(Squares{.count = 100}, 1, 0)));
  CHECK(once != all(dhp::shuffled(Squares{.count = 100}, 1, 1)));
  CHECK(once != all(dhp::shuffled(Squares{.count = 100}, 2, 0)));
  auto sorted = once;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == all(Squares{.count = 100}));
}

TEST_CASE("dataset: held-out splits are disjoint and complete") {
  const auto [train, held_out] = dhp::split_fraction(Squares{}, 0.3);
  CHECK(all(held_out) == Ints{49, 64, 81});
  CHECK(all(train) == Ints{0, 1, 4, 9, 16, 25, 36});
  CHECK(dhp::split_fraction(Squares{}, 0.01).held_out.size() == 1);
  CHECK(dhp::split_fraction(Squares{}, 0.0).held_out.size() == 0);
  CHECK(dhp::split_fraction(Squares{}, 1.0).train.size() == 0);
}

TEST_CASE("dataset: split_evenly gives ordered, disjoint and complete parts") {
  for (const std::int64_t count : {1, 2, 3, 7, 10, 100, 101})
    for (const double fraction : {0.0, 0.02, 0.3, 0.5, 0.9, 1.0})
      for (const std::uint64_t seed : {0u, 1u, 2u}) {
        INFO("count ", count, " fraction ", fraction);
        const auto split = dhp::split_evenly(Squares{.count = count}, fraction, seed);
        auto both = all(split.train);
        CHECK(std::is_sorted(both.begin(), both.end()));
        const auto held_out = all(split.held_out);
        CHECK(std::is_sorted(held_out.begin(), held_out.end()));
        both.insert(both.end(), held_out.begin(), held_out.end());
        std::sort(both.begin(), both.end());
        CHECK(both == all(Squares{.count = count}));
      }
  const auto split = dhp::split_evenly(Squares{.count = 100}, 0.1, 1);
  REQUIRE(split.held_out.size() == 10);
  for (std::int64_t index = 1; index < 10; ++index)
    CHECK(split.held_out.order()(index) - split.held_out.order()(index - 1) == 10);
  CHECK(split.held_out.order()(0) !=
        dhp::split_evenly(Squares{.count = 100}, 0.1, 2).held_out.order()(0));
}

TEST_CASE("dataset: refuses samples, slices and fractions out of range") {
  CHECK_THROWS_WITH_AS(dhp::slice(Squares{}, 5, 11), Contains("no slice [5, 11)"), dhp::Error);
  CHECK_THROWS_AS((void)dhp::slice(Squares{}, 2, 5).get(3), dhp::Error);
  CHECK_THROWS_AS((void)dhp::split_fraction(Squares{}, 1.5), dhp::Error);
}

}  // namespace
