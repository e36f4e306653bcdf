// The random numbers of a sample are repeatable, and independent of other samples, epochs and uses.
#include <dhp/data/sample_random.hpp>
#include <tests/support/test.hpp>

TEST_CASE("sample random: each part of the key changes the numbers, the same key repeats them") {
  const auto first = [](std::uint64_t seed, std::int64_t epoch, std::int64_t sample, DataUse use) {
    return SampleRandom(seed, epoch, sample, use).bits();
  };
  const std::set<std::uint32_t> values{
      first(1, 2, 3, DataUse::augment), first(2, 2, 3, DataUse::augment),
      first(1, 3, 3, DataUse::augment), first(1, 2, 4, DataUse::augment),
      first(1, 2, 3, DataUse::mask)};
  CHECK(values.size() == 5);
  CHECK(first(1, 2, 3, DataUse::augment) == first(1, 2, 3, DataUse::augment));
}

TEST_CASE("sample random: draws stay in their bounds and have the right moments") {
  SampleRandom random(1, 0, 9, DataUse::user);
  double sum = 0;
  double squares = 0;
  std::set<double> normals;
  for (int draw = 0; draw < 4000; ++draw) {
    CHECK(random.below(7) < 7);
    const double u = random.uniform(2, 3);
    CHECK((u >= 2 && u < 3));
    const double z = random.normal();
    sum += z;
    squares += z * z;
    normals.insert({z, random.normal()});
  }
  CHECK(normals.size() == 8000);  // none repeats
  CHECK(std::abs(sum / 4000) < 0.08);
  CHECK(std::abs(squares / 4000 - 1) < 0.12);
}

TEST_CASE("sample random: the data stream differs from the model's stream") {
  CHECK(dhp::detail::data_stream(5, 0, DataUse::order).bits(0) !=
        dhp::RandomStream{5, 0, 0}.bits(0));
}
