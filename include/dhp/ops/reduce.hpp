// Reductions: column sums, sums of all elements, their squares and magnitudes, and a check for non-finite elements.
#pragma once

#include <dhp/ops/checks.hpp>

namespace dhp {

/// sums[c] = beta * sums[c] + sum over rows of x [.., C]; sums [C] in the accumulation type. padded: x may have more
/// columns, which are not read.
template <Device Dev>
void column_sums(Dev& dev, In<Dev> x, Out<Dev> sums, double beta, bool padded = false) {
  detail::check_columns("column_sums:", sums, x, padded);
  column_sums_on(dev, x, sums, beta);
}

/// out, f64 [1] = the sum of all elements, in double.
template <Device Dev>
void sum(Dev& dev, In<Dev> x, Out<Dev> out) {
  check(out.dtype() == DType::f64 && out.count() == 1, "sum: the result is f64 [1], got ",
        out.dtype(), " ", out.shape());
  sum_on(dev, x, out);
}

/// out, f64 [1] = the sum of all squares, in double.
template <Device Dev>
void sum_of_squares(Dev& dev, In<Dev> x, Out<Dev> out) {
  check(out.dtype() == DType::f64 && out.count() == 1,
        "sum_of_squares: the result is f64 [1], got ", out.dtype(), " ", out.shape());
  sum_of_squares_on(dev, x, out);
}

namespace detail {
/// out, f64 [1] = the sum of all magnitudes, in double.
template <Device Dev>
void sum_of_magnitudes(Dev& dev, In<Dev> x, Out<Dev> out) {
  check(out.dtype() == DType::f64 && out.count() == 1,
        "sum_of_magnitudes: the result is f64 [1], got ", out.dtype(), " ", out.shape());
  sum_of_magnitudes_on(dev, x, out);
}

/// flag, i32 [1], becomes 1 if an element is NaN or infinite; else it is unchanged.
template <Device Dev>
void find_nonfinite(Dev& dev, In<Dev> x, Out<Dev> flag) {
  check(flag.dtype() == DType::i32 && flag.count() == 1, "find_nonfinite: the flag is i32 [1]");
  find_nonfinite_on(dev, x, flag);
}
}  // namespace detail
}  // namespace dhp
