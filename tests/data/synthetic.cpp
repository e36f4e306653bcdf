// Synthetic images: repeatable, and with labels that can be learnt.
#include <dhp/data/synthetic.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace {

static_assert(dhp::Dataset<dhp::SyntheticImages>);

TEST_CASE("synthetic: pure in the index, another seed makes other images") {
  const dhp::SyntheticOptions options{.samples = 20, .classes = 3, .height = 6, .width = 7};
  const dhp::SyntheticImages a(options);
  const dhp::SyntheticImages b(options);
  auto other_options = options;
  other_options.seed = 9;
  const dhp::SyntheticImages other(other_options);
  for (std::int64_t index = 0; index < 20; ++index) {
    CHECK(a.get(index).image == b.get(index).image);
    CHECK(a.get(index).label == index % 3);
    CHECK(a.get(index).image != other.get(index).image);
  }
  CHECK(a.get(0).image != a.get(3).image);  // same class, other noise
  CHECK_THROWS_AS((void)a.get(20), dhp::Error);
}

TEST_CASE("synthetic: the nearest class mean tells the label") {
  const dhp::SyntheticImages data(
      {.samples = 200, .classes = 5, .height = 8, .width = 8, .noise = 0.7});
  const std::size_t pixels = 8 * 8 * 3;
  std::vector<std::vector<double>> means(5, std::vector<double>(pixels));
  for (std::int64_t index = 0; index < 100; ++index) {
    const auto sample = data.get(index);
    for (std::size_t at = 0; at < pixels; ++at)
      means[static_cast<std::size_t>(sample.label)][at] += sample.image.pixels[at] / 20.0;
  }
  int right = 0;
  for (std::int64_t index = 100; index < 200; ++index) {
    const auto sample = data.get(index);
    double best = std::numeric_limits<double>::max();
    int guess = -1;
    for (int label = 0; label < 5; ++label) {
      double distance = 0;
      for (std::size_t at = 0; at < pixels; ++at)
        distance +=
            std::pow(means[static_cast<std::size_t>(label)][at] - sample.image.pixels[at], 2);
      if (distance < best) {
        best = distance;
        guess = label;
      }
    }
    right += guess == sample.label ? 1 : 0;
  }
  CHECK(right > 90);
}

TEST_CASE("synthetic: refuses what cannot be") {
  CHECK_THROWS_AS(dhp::SyntheticImages({.samples = 0}), dhp::Error);
  CHECK_THROWS_AS(dhp::SyntheticImages({.noise = 1.5}), dhp::Error);
}

}  // namespace
