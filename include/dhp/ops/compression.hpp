// Ops for reducers that compress gradients: an error memory that skipped steps leave unchanged, the largest elements,
// packed signs, and orthonormal columns.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/ops/checks.hpp>
#include <dhp/ops/step.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace dhp::detail {
/// Updates an error memory after a step: memory = (step was applied ? fresh : memory) * loss_scale / used_loss_scale.
/// The factor converts the memory to the next step's loss scale. fresh, memory [n] are both f32 or both f64.
template <Device Dev>
void keep_if_applied(Dev& dev, InView<Dev> state, InView<Dev> fresh, OutView<Dev> memory) {
  check_step_state<Dev>(state);
  check_like("keep_if_applied: the memory", memory, fresh);
  keep_if_applied_on(dev, state, fresh, memory);
}

/// Moves the k elements of largest magnitude out of x [n] and sets them to 0 there. indices i32 [k] are ascending;
/// values is [k]. Of equal elements the first are moved; NaN counts as larger than infinity. k <= n < 2^31.
template <Device Dev>
void take_largest(Dev& dev, OutView<Dev> x, OutView<Dev> indices, OutView<Dev> values) {
  check(indices.dtype() == DType::i32 && values.dtype() == x.dtype() &&
            indices.count() == values.count() && values.count() <= x.count() &&
            x.count() <= std::numeric_limits<std::int32_t>::max(),
        "take_largest: ", indices.shape(), " indices of ", indices.dtype(), " and ", values.shape(),
        " values of ", values.dtype(), " do not fit ", x.shape(), " of ", x.dtype());
  if (values.count() > 0) take_largest_on(dev, x, indices, values);
}

/// Returns the number of bytes for the packed signs of `count` elements.
[[nodiscard]] constexpr std::int64_t sign_bytes(std::int64_t count) { return (count + 7) / 8; }

/// Bit i % 8 of bits[i / 8] is 1 if x[i] >= 0. x [n], bits u8 [sign_bytes(n)].
template <Device Dev>
void pack_signs(Dev& dev, InView<Dev> x, OutView<Dev> bits) {
  check(bits.dtype() == DType::u8 && bits.count() == sign_bytes(x.count()),
        "pack_signs: ", bits.shape(), " of ", bits.dtype(), " is not u8 [", sign_bytes(x.count()),
        "]");
  if (x.count() > 0) pack_signs_on(dev, x, bits);
}
/// Adds +-factor * magnitudes / n to y[i], with minus if bit i of bits, u8 [sign_bytes(n)], is 0. magnitudes f64 [1]:
/// sum over n elements; y [n].
template <Device Dev>
void add_signs(Dev& dev, InView<Dev> bits, InView<Dev> magnitudes, double factor, OutView<Dev> y) {
  check(bits.dtype() == DType::u8 && bits.count() == sign_bytes(y.count()) &&
            magnitudes.dtype() == DType::f64 && magnitudes.count() == 1,
        "add_signs: ", bits.shape(), " of ", bits.dtype(), " and ", magnitudes.shape(), " of ",
        magnitudes.dtype(), " do not fit ", y.shape());
  if (y.count() > 0) add_signs_on(dev, bits, magnitudes, factor, y);
}

/// Makes the columns of x [M, R], R <= M, orthonormal by Gram-Schmidt, with two passes per column ("twice is enough",
/// Giraud et al. 2005). A column that depends on earlier columns is first replaced by random numbers. f32 or f64.
template <Device Dev>
void orthonormalize(Dev& dev, OutView<Dev> x, const RandomStream& random) {
  check(x.shape().rank() == 2 && x.columns() <= x.rows(), "orthonormalize: the columns of ",
        x.shape(), " cannot be orthonormal");
  if (x.count() > 0) orthonormalize_on(dev, x, random);
}

/// Gram-Schmidt for any device. sum(f) must return the sum of f(row) over all rows, in double. for_rows(f) must call
/// f(row) for each row, on the thread that reads this row later.
template <class T, class Sum, class ForRows>
constexpr void gram_schmidt(T* x, std::int64_t columns, const RandomStream& random, Sum sum,
                            ForRows for_rows) {
  constexpr double spanned = 16 * std::numeric_limits<T>::epsilon();
  for (std::int64_t column = 0; column < columns; ++column) {
    T* const mine = x + column;
    const auto squares = [&] {
      return sum([=](std::int64_t row) {
        const double value = mine[row * columns];
        return value * value;
      });
    };
    double before = squares(), after = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
      for (int pass = 0; pass < 2; ++pass)
        for (std::int64_t other = 0; other < column; ++other) {
          const T* const theirs = x + other;
          const double along = sum([=](std::int64_t row) {
            return static_cast<double>(mine[row * columns]) * theirs[row * columns];
          });
          for_rows([=](std::int64_t row) {
            mine[row * columns] =
                static_cast<T>(mine[row * columns] - along * theirs[row * columns]);
          });
        }
      after = squares();
      if (attempt == 1 || after > spanned * spanned * before) break;
      for_rows([=](std::int64_t row) {
        const auto index = static_cast<std::uint64_t>(row * columns + column);
        mine[row * columns] = static_cast<T>(random.uniform(index) - 0.5);
      });
      before = squares();
    }
    const double length = std::sqrt(after);
    for_rows([=](std::int64_t row) {
      mine[row * columns] = static_cast<T>(mine[row * columns] / length);
    });
  }
}

}  // namespace dhp::detail
