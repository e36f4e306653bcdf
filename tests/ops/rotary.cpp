// Rotary positions against the standard library's cosine and sine: packed samples, wider rows, far positions.
#include <dhp/cpu/rotary.hpp>
#include <tests/support/tensors.hpp>

namespace {

// Positions of samples of 3, 2997 and 1 rows; the last sample begins at position 3000.
std::vector<std::int32_t> positions() {
  std::vector<std::int32_t> result(3001);
  std::iota(result.begin(), result.begin() + 3, 0);
  std::iota(result.begin() + 3, result.end(), 0);
  result.back() = 3000;
  return result;
}
// Rotates the heads, which are the first columns of rows with `columns` columns.
std::vector<double> expected(std::vector<double> x, std::int64_t columns, std::int64_t size,
                             const detail::RotaryOptions& options) {
  const auto rows = static_cast<std::int64_t>(x.size()) / columns, half = size / 2;
  const auto at_row = positions();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t at = 0; at < options.heads * half; ++at) {
      const auto c = static_cast<double>(at % half);
      const double angle = static_cast<double>(at_row[static_cast<std::size_t>(row)]) *
                           std::pow(options.base, -c / static_cast<double>(half)) *
                           (options.inverse ? -1 : 1);
      auto& one = x[static_cast<std::size_t>(row * columns + at / half * size + at % half)];
      auto& other = *(&one + half);
      const double a = one, b = other;
      one = a * std::cos(angle) - b * std::sin(angle);
      other = b * std::cos(angle) + a * std::sin(angle);
    }
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("rotary: matches the library's cosine and sine, and its inverse undoes it", T,
                   double, float, bf16, f16) {
  Cpu dev({.threads = 2});
  const double close = std::is_same_v<T, double> ? 2e-12 : is_16_bit<T> ? 2e-2 : 1e-6;
  const auto at_row = tensor_of(dev, positions());
  for (const auto& [heads, size, columns] : {std::tuple{1, 2, 2}, {3, 8, 24}, {2, 6, 40}}) {
    CAPTURE(size);
    const detail::RotaryOptions options{
        .heads = heads, .base = 500, .row_stride = columns > heads * size ? columns : 0};
    auto x = random_tensor<T>(dev, {3001, columns}, 1);
    const auto before = widened(x);
    const View<Cpu> view{x.mut().bytes(), x.dtype(), {3001, heads * size}};
    detail::rotary(dev, view, at_row.view(), options);
    CHECK(distance(widened(x), expected(before, columns, size, options)) < close);
    auto back = options;
    back.inverse = true;
    detail::rotary(dev, view, at_row.view(), back);
    CHECK(distance(widened(x), before) < close);
  }
}

TEST_CASE_TEMPLATE("rotary: threads change no bit", T, double, bf16) {
  CHECK(same_on_threads([&](Cpu& dev) {
    auto x = random_tensor<T>(dev, {3001, 8}, 1);
    detail::rotary(dev, x.mut(), tensor_of(dev, positions()).view(), {.heads = 2});
    return widened(x);
  }));
}

TEST_CASE("rotary: operands that do not fit are refused") {
  Cpu dev;
  auto x = random_tensor<float>(dev, {3, 6}, 1);
  const auto at_row = tensor_of(dev, std::vector<std::int32_t>{0, 3, 4});
  const auto refusal = [&](const detail::RotaryOptions& options) {
    return message_of([&] { detail::rotary(dev, x.mut(), at_row.view(), options); });
  };
  CHECK(refusal({.heads = 2}) == "rotary: 6 columns cannot be divided into 2 heads of pairs");
  CHECK(refusal({.base = 0}) == "rotary: the base must be above 0, got 0");
  CHECK(refusal({.row_stride = 5}) == "rotary: rows of 6 columns cannot be 5 elements apart");
}
