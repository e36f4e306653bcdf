// Rotary position embedding (Su et al. 2021, "RoFormer", section 3.2.2) rotates each head of queries and keys by angles
// that grow with the position, so that the product of a query and a key depends only on the distance of the two.
// Column c of a head's first half and column c of its second half form a pair, as in Llama.
#pragma once

#include <dhp/tensor/view.hpp>

#include <cmath>
#include <cstdint>
#include <numbers>

namespace dhp::detail {

/// Options of a rotation. Pair c of `half` pairs is rotated by position * base^(-c / half) radians.
struct RotaryOptions {
  int heads = 1;  ///< number of heads in a row
  double base = 10000;
  bool inverse = false;  ///< rotate backwards, for gradients
  /// Elements from one row to the next, if x is columns of a wider matrix. 0 means contiguous rows.
  std::int64_t row_stride = 0;
};

/// The rotation of a pair, computed in double on every device, because long samples have large angles.
struct Rotation {
  double cosine, sine;

  /// Returns by how many full turns pair c rotates per position. log_base: the natural logarithm of the base.
  static constexpr double turns(double log_base, std::int64_t c, std::int64_t half) {
    return std::exp(-log_base * static_cast<double>(c) / static_cast<double>(half)) /
           (2 * std::numbers::pi);
  }
  static constexpr Rotation of_turns(double turns) {
    const double nearest = std::floor(4 * turns + 0.5);  // number of the nearest quarter turn
    const double angle = (4 * turns - nearest) * (std::numbers::pi / 2);
    const double square = angle * angle;  // at most (pi / 4)^2, so that short Taylor series suffice
    double cosine = 1, sine = 1;
    for (int n = 16; n > 0; n -= 2) {
      cosine = 1 - square * (1.0 / (n * (n - 1))) * cosine;
      sine = 1 - square * (1.0 / (n * (n + 1))) * sine;
    }
    sine *= angle;
    const auto quarter = static_cast<std::int64_t>(nearest) & 3;
    const bool odd = quarter % 2 != 0;
    const double x = odd ? sine : cosine, y = odd ? cosine : sine;
    return {quarter == 1 || quarter == 2 ? -x : x, quarter > 1 ? -y : y};
  }
};

/// Rotates x [R, heads * head size] in place. positions: i32 [R].
template <Device Dev>
void rotary(Dev& dev, OutView<Dev> x, InView<Dev> positions, const RotaryOptions& options) {
  check(options.heads >= 1 && x.columns() % (2 * options.heads) == 0, "rotary: ", x.columns(),
        " columns cannot be divided into ", options.heads, " heads of pairs");
  check(options.base > 0, "rotary: the base must be above 0, got ", options.base);
  check(options.row_stride == 0 || options.row_stride >= x.columns(), "rotary: rows of ",
        x.columns(), " columns cannot be ", options.row_stride, " elements apart");
  check(positions.dtype() == DType::i32 && positions.count() == x.rows(), "rotary: ", x.rows(),
        " rows need as many positions of i32, got ", positions.shape(), " of ", positions.dtype());
  if (x.count() > 0) rotary_on(dev, x, positions, options);
}

}  // namespace dhp::detail
