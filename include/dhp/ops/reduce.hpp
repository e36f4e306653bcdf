// Reductions: column sums; sums of elements, squares and magnitudes; and a check for non-finite elements.
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

/// out, f64 [1] = the sum of all elements of x [..], in double.
template <Device Dev>
void sum(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  detail::check_one("sum: the result", out, DType::f64);
  sum_on(dev, x, out);
}

/// out, f64 [1] = the sum of the squares of all elements of x [..], in double.
template <Device Dev>
void sum_of_squares(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  detail::check_one("sum_of_squares: the result", out, DType::f64);
  sum_of_squares_on(dev, x, out);
}

namespace detail {
/// out, f64 [1] = the sum of the magnitudes of all elements of x [..], in double.
template <Device Dev>
void sum_of_magnitudes(Dev& dev, InView<Dev> x, OutView<Dev> out) {
  check_one("sum_of_magnitudes: the result", out, DType::f64);
  sum_of_magnitudes_on(dev, x, out);
}

/// Sets flag, i32 [1], to 1 if an element of x [..] is NaN or infinite, and leaves it unchanged otherwise.
template <Device Dev>
void find_nonfinite(Dev& dev, InView<Dev> x, OutView<Dev> flag) {
  check_one("find_nonfinite: the flag", flag, DType::i32);
  find_nonfinite_on(dev, x, flag);
}
}  // namespace detail

}  // namespace dhp
