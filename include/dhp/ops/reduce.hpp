// Reductions: column sums; sums of elements, squares and magnitudes; and the number of non-finite elements.
#pragma once

#include <dhp/ops/checks.hpp>

namespace dhp {

/// sums[c] = beta * sums[c] + the sum of x [.., C] over rows; sums [C] is in the accumulation type. padded: x may have
/// further columns, which are not read.
template <Device Dev>
void column_sums(Dev& dev, InView<Dev> x, OutView<Dev> sums, double beta, bool padded = false) {
  detail::check_columns("column_sums:", sums, x, padded);
  column_sums_on(dev, x, sums, beta);
}

namespace detail {
/// Rules of sums: the summand of an element.
struct Itself {
  constexpr double operator()(double value) const { return value; }
};
struct Square {
  constexpr double operator()(double value) const { return value * value; }
};
struct Magnitude {
  constexpr double operator()(double value) const { return value < 0 ? -value : value; }
};
struct IsNonfinite {
  constexpr double operator()(double value) const { return value - value == 0 ? 0 : 1; }
};
}  // namespace detail

/// out, f64 [1] = the sum of all elements of x [..], in double.
template <Device Dev>
void sum(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  detail::check_one("sum: the result", out, DType::f64);
  sum_on(dev, x, detail::Itself(), out);
}

/// out, f64 [1] = the sum of the squares of all elements of x [..], in double.
template <Device Dev>
void sum_of_squares(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  detail::check_one("sum_of_squares: the result", out, DType::f64);
  sum_on(dev, x, detail::Square(), out);
}

namespace detail {
/// out, f64 [1] = the sum of the magnitudes of all elements of x [..], in double.
template <Device Dev>
void sum_of_magnitudes(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  check_one("sum_of_magnitudes: the result", out, DType::f64);
  sum_on(dev, x, Magnitude(), out);
}

/// out, f64 [1] = the number of elements of x [..] that are NaN or infinite.
template <Device Dev>
void count_nonfinite(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  check_one("count_nonfinite: the result", out, DType::f64);
  sum_on(dev, x, IsNonfinite(), out);
}
}  // namespace detail

}  // namespace dhp
