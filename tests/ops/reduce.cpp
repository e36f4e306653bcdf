// Reductions against long double. NaN and infinities are found at every position.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/reduce.hpp>
#include <tests/support/tensors.hpp>

namespace {

// Rows are around the tile of 128, columns around the vector width.
const std::vector<Shape> shapes{{0, 5}, {1, 1}, {3, 7}, {129, 33}, {2, 70, 8}, {1000, 1}};

}  // namespace

TEST_CASE_TEMPLATE("reductions: column_sums adds to beta times the old values", T, double, float,
                   bf16, f16) {
  using A = Accumulator<T>;
  for (const int threads : {1, 2, 3})
    for (const auto& shape : shapes) {
      Cpu dev({.threads = threads});
      const auto x = random_tensor<T>(dev, shape, 1);
      const auto values = widened(x);
      const auto columns = static_cast<std::size_t>(shape.back());
      for (const double beta : {0.0, 1.0, -0.5}) {
        auto sums = random_tensor<A>(dev, {shape.back()}, 2);
        auto expected = widened(sums);
        for (auto& value : expected) value *= beta;
        if (beta == 0) fill(dev, sums.mut(), NAN);  // beta 0: must not be read
        for (std::size_t i = 0; i < values.size(); ++i) expected[i % columns] += values[i];
        column_sums(dev, x, sums.mut(), beta);
        CHECK(distance(widened(sums), expected) < (std::is_same_v<T, double> ? 1e-12 : 1e-4));
      }
    }
}

TEST_CASE_TEMPLATE("reductions: sum and sum_of_squares accumulate in double", T, double, float,
                   bf16, f16) {
  Cpu dev({.threads = 2});
  for (const std::int64_t size : {0, 1, 17, 40000}) {
    const auto x = random_tensor<T>(dev, {size}, 1);
    long double total = 0;
    long double squares = 0;
    for (const double value : widened(x)) {
      total += value;
      squares += static_cast<long double>(value) * value;
    }
    auto out = Tensor<Cpu>::zeros(dev, DType::f64, {1});
    sum(dev, x, out.mut());
    CHECK(widened(out)[0] == Approx(static_cast<double>(total)).epsilon(1e-12));
    sum_of_squares(dev, x, out.mut());
    CHECK(widened(out)[0] == Approx(static_cast<double>(squares)).epsilon(1e-12));
  }
}

TEST_CASE_TEMPLATE("reductions: threads change no bit", T, double, float, bf16, f16) {
  CHECK(same_on_threads([](Cpu& dev) {
    const auto x = random_tensor<T>(dev, {2000, 31}, 1);
    Tensor<Cpu> sums(dev, accumulation_type(dtype_of<T>()), {31});
    Tensor<Cpu> total(dev, DType::f64, {1}), squares(dev, DType::f64, {1});
    column_sums(dev, x, sums.mut(), 0);
    sum(dev, x, total.mut());
    sum_of_squares(dev, x, squares.mut());
    return std::vector{widened(sums), widened(total), widened(squares)};
  }));
}

TEST_CASE_TEMPLATE("reductions: count_nonfinite finds infinity and NaN anywhere", T, double, float,
                   bf16, f16) {
  Cpu dev({.threads = 2});
  const std::int64_t size = (1 << 15) + 9;
  auto x = random_tensor<T>(dev, {size}, 1);
  Tensor<Cpu> count(dev, DType::f64, {1});
  const auto found = [&] {
    detail::count_nonfinite(dev, x, count.mut());
    return count.to_host<double>(dev)[0];
  };
  T* values = x.mut().template data<T>();
  const double infinity = std::numeric_limits<double>::infinity();
  // The largest finite numbers of f16 and subnormal numbers are finite.
  values[5] = static_cast<T>(65504.0);
  values[6] = static_cast<T>(-65504.0);
  values[7] = static_cast<T>(1e-7);
  CHECK(found() == 0);
  for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(),
                           -std::numeric_limits<double>::quiet_NaN()})
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1} << 15, size - 1}) {
      const T kept = values[at];
      values[at] = static_cast<T>(bad);
      CHECK(found() == 1);
      values[at] = kept;
    }
  std::fill_n(values, size, static_cast<T>(infinity));
  CHECK(found() == static_cast<double>(size));
}

TEST_CASE("reductions: operands that do not fit are refused") {
  Cpu dev;
  const auto x = random_tensor<bf16>(dev, {3, 4}, 1);
  auto sums = random_tensor<double>(dev, {4}, 2);
  CHECK(message_of([&] { column_sums(dev, x, sums.mut(), 0); }) ==
        "column_sums: [4] of f64 does not fit the columns of [3, 4] of bf16; make it [4] of f32");
  CHECK(message_of([&] { sum(dev, x, sums.mut()); }) ==
        "sum: the result [4] of f64 does not fit; make it [1] of f64");
  CHECK(message_of([&] { detail::count_nonfinite(dev, x, sums.mut()); }) ==
        "count_nonfinite: the result [4] of f64 does not fit; make it [1] of f64");
  try {
    sum(dev, x, sums.mut());
  } catch (const Error& error) {
    CHECK(to_text(error.where()).starts_with("reduce.hpp:"));  // the operation's line
  }
}
