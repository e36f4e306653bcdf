// Initial values: many at once have the bits of values computed one by one.
#include <dhp/nn/init.hpp>
#include <tests/support/test.hpp>

namespace {

constexpr RandomStream stream{.seed = 11, .series = 0xffffffffu, .use = 7};

template <class T>
std::vector<T> one_by_one(const Initializer& init, std::int64_t first, std::size_t count) {
  std::vector<T> result;
  for (std::size_t at = 0; at < count; ++at)
    result.push_back(static_cast<T>(init(stream, first + static_cast<std::int64_t>(at))));
  return result;
}
template <class T>
void check_same(const Initializer& init, std::int64_t first, std::size_t count) {
  std::vector<T> result(count);
  init.fill(stream, first, std::span(result));
  const auto expected = one_by_one<T>(init, first, count);
  CHECK((count == 0 || std::memcmp(result.data(), expected.data(), count * sizeof(T)) == 0));
}

}  // namespace

TEST_CASE_TEMPLATE("initial values: a filled range has the bits of single elements", T, double,
                   float, bf16, f16) {
  for (const auto& init : {constant(0.3), normal(0.02), normal(-3e4), normal(0), uniform(0.5)})
    for (const std::int64_t first : {0, 1, 255, 70001})
      for (const std::size_t count : {0, 1, 31, 32, 33, 256, 1000}) {
        INFO("init.value ", init.value, " first ", first, " count ", count);
        check_same<T>(init, first, count);
      }
  check_same<T>(normal(0.02), 3, 500000);
  // Subnormal numbers, zeros of both signs, and overflow.
  for (const double deviation : {1e-7, 1e-40, 1e-45, 1e-310, 1e5, 1e38})
    check_same<T>(normal(deviation), 5, 1000);
}

TEST_CASE("initial values: a layer's inputs decide its deviation or bound") {
  CHECK(he_normal(50).value == Approx(0.2).epsilon(1e-15));
  CHECK(linear_uniform(16).value == 0.25);
}

// The values are as near as possible to a rounding boundary of T, so the last bit of the double decides.
TEST_CASE_TEMPLATE("initial values: ties are rounded alike in a range and for single elements", T,
                   float, bf16, f16) {
  const double border = 1 + (is_16_bit<T> ? (std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11) : 0x1p-24);
  for (std::int64_t at = 0; at < 4000; ++at) {
    std::vector<T> result(64);
    const auto init = normal(border / stream.normal(static_cast<std::uint64_t>(at)));
    init.fill(stream, at, std::span(result));
    const auto expected = static_cast<T>(init(stream, at));
    CHECK(std::memcmp(result.data(), &expected, sizeof expected) == 0);
  }
}
