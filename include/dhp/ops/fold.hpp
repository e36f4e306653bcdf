// Order-free sums: values are added as integers on an absolute grid, so that the order and the grouping of
// the additions change no bit. Two 64-bit limbs per element: high = rint(x 2^33), low = the rest in units
// of 2^-83. Every communicator can add them; no maximum has to be agreed on. A value is rounded to that
// grid, which float values of 2^-60 and above are on; sums of up to 2^14 values, below 2^30, are exact.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

/// high += limbs of x, low likewise, element by element; x f64 or f32 [n]. flag, i32 [1], becomes 1 if
/// |x| >= 2^18 or x is not finite: such a value is not added.
template <Device Dev>
void fold(Dev& dev, In<Dev> x, Out<Dev> high, Out<Dev> low, Out<Dev> flag) {
  check(high.count() == x.count() && low.count() == x.count() && high.dtype() == DType::i64 &&
            low.dtype() == DType::i64,
        "fold: the limbs of ", x.shape(), " are i64 of the same count");
  check(flag.dtype() == DType::i32 && flag.count() == 1, "fold: the flag is i32 [1], got ",
        flag.dtype(), " ", flag.shape());
  fold_on(dev, x, high, low, flag);
}

/// x = the sum that the limbs hold, rounded once to x's type.
template <Device Dev>
void unfold(Dev& dev, In<Dev> high, In<Dev> low, Out<Dev> x) {
  check(high.count() == x.count() && low.count() == x.count() && high.dtype() == DType::i64 &&
            low.dtype() == DType::i64,
        "unfold: the limbs of ", x.shape(), " are i64 of the same count");
  unfold_on(dev, high, low, x);
}

}  // namespace dhp
