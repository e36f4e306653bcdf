// Cases of reductions on any device.
#pragma once

#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/reduce.hpp>
#include <tests/support/sides.hpp>

namespace tests {

struct ColumnSums {
  Shape shape;
  double beta = 0.5;
  std::int64_t skip = 0;     ///< x starts there in its memory
  std::int64_t padding = 0;  ///< columns without a sum
};
/// Returns the sums, added to beta times old values, which with beta 0 are NaN.
Results column_sum_results(auto& side, const ColumnSums& each) {
  auto sums = side.sums({each.shape.back() - each.padding}, 2);
  if (each.beta == 0) fill(side.dev, sums.mut(), NAN);
  const auto all = side.elements({each.shape.count() + each.skip}, 1);
  column_sums(side.dev, all.view().slice(each.skip, all.count()).as(each.shape), sums.mut(),
              each.beta, each.padding > 0);
  return side.results(sums);
}
template <class T, class Dev>
void check_column_sums(const ColumnSums& each) {
  CAPTURE(to_text(each.shape));
  const auto [got, expected] =
      Sides<T, Dev>()([&](auto& side) { return column_sum_results(side, each); });
  // The terms are near 1, and their sum may cancel.
  const double size = std::sqrt(static_cast<double>(each.shape.rows())) + 1;
  CHECK(distance(got[0], expected[0], size) <= tolerance<Accumulator<T>>);
}

/// Returns the sum, the sum of squares and that of magnitudes of the elements from `skip` on.
Results total_results(auto& side, std::int64_t count, std::int64_t skip = 0) {
  const auto x = side.elements({count}, 1);
  const auto part = x.view().slice(skip, count);
  auto total = side.tensor({1}, std::vector<double>(1)),
       squares = side.tensor({1}, std::vector<double>(1)),
       magnitudes = side.tensor({1}, std::vector<double>(1));
  sum(side.dev, part, total.mut());
  sum_of_squares(side.dev, part, squares.mut());
  detail::sum_of_magnitudes(side.dev, part, magnitudes.mut());
  return side.results(total, squares, magnitudes);
}
/// Checks that totals are accumulated in double.
template <class T, class Dev>
void check_totals(std::int64_t count, std::int64_t skip = 0) {
  INFO("count ", count, " skip ", skip);
  Side<T, Dev> side{tested_device<Dev>()};
  long double total = 0, squares = 0, magnitudes = 0;
  const auto x = side.values(side.elements({count}, 1).view().slice(skip, count));
  for (const long double value : x) {
    total += value;
    squares += value * value;
    magnitudes += std::abs(value);
  }
  const auto found = total_results(side, count, skip);
  const auto near = [&](double got, long double expected, long double size) {
    CHECK(std::abs(got - expected) <= 1e-13L * size);
  };
  near(found[0][0], total, 1 + squares);
  near(found[1][0], squares, squares);
  near(found[2][0], magnitudes, magnitudes);
}

/// Checks that infinity and NaN are counted anywhere, and nothing else.
template <class T, class Dev>
void check_count_nonfinite(std::int64_t count, std::int64_t skip) {
  Side<T, Dev> side{tested_device<Dev>()};
  auto x = side.elements({count}, 1);
  Tensor<Dev> result(side.dev, DType::f64, {1});
  const auto found = [&] {
    detail::count_nonfinite(side.dev, x.view().slice(skip, count), result.mut());
    return result.template to_host<double>(side.dev)[0];
  };
  // The largest finite numbers of f16 and subnormal numbers are finite.
  for (const auto& [at, value] : {std::pair{5, 65504.0}, {6, -65504.0}, {7, 1e-7}})
    set_element<T>(side.dev, x.mut(), at, static_cast<T>(value));
  if (skip > 0) set_element<T>(side.dev, x.mut(), 0, static_cast<T>(NAN));  // outside the view
  CHECK(found() == 0);
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double bad : {infinite, -infinite, double{NAN}, -double{NAN}})
    for (const std::int64_t at : {skip, count / 2, count - 1}) {
      CAPTURE(at);
      set_element<T>(side.dev, x.mut(), at, static_cast<T>(bad));
      CHECK(found() == 1);
      set_element<T>(side.dev, x.mut(), at, T(1.0f));
    }
  fill(side.dev, x.mut(), infinite);
  CHECK(found() == static_cast<double>(count - skip));
}

}  // namespace tests
