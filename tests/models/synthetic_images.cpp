// Synthetic images: repeatable, with labels that can be learned.
#include <examples/data/synthetic_images.hpp>
#include <tests/support/test.hpp>

static_assert(dhp::Dataset<examples::SyntheticImages>);

TEST_CASE("synthetic: images depend on index and seed only") {
  const examples::SyntheticOptions options{.samples = 20, .classes = 3, .height = 6, .width = 7};
  const examples::SyntheticImages a(options);
  const examples::SyntheticImages b(options);
  auto other_options = options;
  other_options.seed = 9;
  const examples::SyntheticImages other(other_options);
  for (std::int64_t index = 0; index < 20; ++index) {
    CHECK(a.get(index).image == b.get(index).image);
    CHECK(a.get(index).label == index % 3);
    CHECK(a.get(index).image != other.get(index).image);
  }
  CHECK(a.get(0).image != a.get(3).image);  // same class, different noise
  CHECK_THROWS_AS((void)a.get(20), dhp::Error);
}

TEST_CASE("synthetic: images of one class are nearer to each other than to those of another") {
  const examples::SyntheticImages data({.samples = 200, .classes = 5, .height = 8, .width = 8});
  const auto distance = [&](std::int64_t a, std::int64_t b) {
    const auto x = data.get(a).image.pixels;
    const auto y = data.get(b).image.pixels;
    double sum = 0;
    for (std::size_t at = 0; at < x.size(); ++at) sum += std::pow(x[at] - y[at], 2);
    return sum;
  };
  int nearer = 0;
  for (std::int64_t index = 0; index < 100; ++index)
    nearer += distance(index, index + 5) < distance(index, index + 6) ? 1 : 0;
  CHECK(nearer > 90);
}
