// Elementwise ops: every pair of types, aliases, odd sizes, the same bits for any number of threads.
#include <dhp/cpu/elementwise.hpp>
#include <tests/ops/elementwise.hpp>

#include <bit>

namespace {

// Sizes near the vector width and near the size of a tile.
const std::vector<std::int64_t> sizes{0, 1, 7, 513, detail::cpu::elementwise_tile + 3};

template <class T>
double rounded(double value) {
  return static_cast<double>(static_cast<T>(static_cast<Accumulator<T>>(value)));
}

}  // namespace

TEST_CASE_TEMPLATE("elementwise: fill and scale are exact", T, double, float, bf16, f16) {
  Cpu dev({.threads = 3});
  for (const auto size : sizes) {
    auto y = random_tensor<T>(dev, {size}, 1);
    const auto before = widened(y);
    scale(dev, -0.75, y.mut());
    auto expected = before;
    for (auto& value : expected) value = rounded<T>(-0.75 * value);
    CHECK(widened(y) == expected);
    fill(dev, y.mut(), 0.1);
    CHECK(widened(y) ==
          std::vector<double>(static_cast<std::size_t>(size), static_cast<double>(T(0.1))));
  }
}

TEST_CASE_TEMPLATE("elementwise: add matches the definition, with and without an alias", T, double,
                   float, bf16, f16) {
  Cpu dev({.threads = 2});
  for (const auto size : sizes) {
    auto a = random_tensor<T>(dev, {size}, 1);
    const auto b = random_tensor<T>(dev, {size}, 2);
    const auto left = widened(a);
    const auto right = widened(b);
    std::vector<double> expected;
    for (std::size_t i = 0; i < left.size(); ++i)
      expected.push_back(rounded<T>(left[i] + right[i]));
    Tensor<Cpu> y(dev, dtype_of<T>(), {size});
    add(dev, a, b, y.mut());
    CHECK(widened(y) == expected);
    add(dev, a, b, a.mut());
    CHECK(widened(a) == expected);
  }
}

TEST_CASE_TEMPLATE("add_both: adds two vectors at once; beta 0 ignores the old values", T, double,
                   float) {
  Cpu dev;
  const auto from = Tensor<Cpu>::from_host(dev, {2}, std::vector<T>{1, 2});
  const auto more = Tensor<Cpu>::from_host(dev, {3}, std::vector<T>{4, 5, 6});
  for (const double beta : {0.0, 1.0, 0.5}) {
    CAPTURE(beta);
    auto one = Tensor<Cpu>::from_host(dev, {2}, std::vector<T>{8, 16});
    auto other = Tensor<Cpu>::from_host(dev, {3}, std::vector<T>{2, 4, 6});
    if (beta == 0) {
      fill(dev, one.mut(), NAN);
      fill(dev, other.mut(), NAN);
    }
    detail::add_both(dev, {2, from, one.mut()}, {0.5, more, other.mut()}, beta);
    const double kept = beta;
    CHECK(widened(one) == std::vector<double>{8 * kept + 2, 16 * kept + 4});
    CHECK(widened(other) == std::vector<double>{2 * kept + 2, 4 * kept + 2.5, 6 * kept + 3});
  }
}

TEST_CASE("elementwise: add, axpy and cast work for every mix of types") {
  check_mixed_types<Cpu>(1031);
}

TEST_CASE_TEMPLATE("elementwise: cast rounds to nearest once, and keeps NaN and infinity", T, float,
                   bf16, f16) {
  Cpu dev;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{
      0.0,    -0.0,     1.0 + 1e-9, 1e300,
      -1e300, infinity, -infinity,  std::numeric_limits<double>::quiet_NaN()};
  const auto x = Tensor<Cpu>::from_host(dev, {8}, values);
  Tensor<Cpu> y(dev, dtype_of<T>(), {8});
  cast(dev, x, y.mut());
  auto got = widened(y);
  CHECK(std::signbit(got[1]));
  CHECK(std::isnan(got[7]));
  got.pop_back();
  CHECK(got == std::vector<double>{0, 0, 1, infinity, -infinity, infinity, -infinity});
}

// Neighbors in ascending order are all normal or all subnormal; a large odd step mixes both.
TEST_CASE_TEMPLATE("elementwise: a cast rounds a row like its elements", T, bf16, f16) {
  Cpu dev;
  for (const std::uint32_t step : {1u, 4001u}) {
    std::vector<float> values(0x10000 + 7);
    for (std::uint32_t i = 0; i < values.size(); ++i)
      values[i] = std::bit_cast<float>(i * step << 16 | (0x7fffu + i % 3));
    Tensor<Cpu> x(dev, DType::f32, {std::ssize(values)}), y(dev, dtype_of<T>(), x.shape());
    std::ranges::copy(values, x.mut().template data<float>());
    cast(dev, x, y.mut());
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T got = y.view().template data<T>()[i];
      wrong += std::isnan(values[i]) ? !std::isnan(float{got}) : got.bits != T(values[i]).bits;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("elementwise: rsqrt matches the definition in place", T, double, float) {
  Cpu dev({.threads = 2});
  auto x = random_tensor<T>(dev, {301}, 1);
  auto expected = widened(x);
  T* values = x.mut().template data<T>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    values[i] = values[i] * values[i];
    expected[i] = 1 / std::sqrt(static_cast<double>(values[i]) + 1e-5);
  }
  rsqrt(dev, x, 1e-5, x.mut());
  const auto got = widened(x);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(expected[i]).epsilon(std::is_same_v<T, double> ? 1e-15 : 3e-7));
}

TEST_CASE_TEMPLATE("elementwise: threads change no bit", T, double, float, bf16, f16) {
  CHECK(same_on_threads([](Cpu& dev) {
    const Shape shape{2 * detail::cpu::elementwise_tile + 77};
    const auto x = random_tensor<float>(dev, shape, 1);
    auto y = random_tensor<T>(dev, shape, 2);
    axpy(dev, 0.3, x, y.mut());
    add(dev, x, y, y.mut());
    scale(dev, 1.1, y.mut());
    return widened(y);
  }));
}
