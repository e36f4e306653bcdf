// Inverted dropout (Srivastava et al. 2014) with counter-based random numbers. The mask depends only on a row's global
// number and on the column, so that it is the same in every layout and in the backward pass.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/ops/checks.hpp>

#include <cmath>
#include <cstdint>

namespace dhp {

struct DropoutOptions {
  double probability = 0;  ///< probability that an element is dropped
  RandomStream random{};
  std::int64_t first_column = 0;   ///< index of the first local column in the unsharded tensor
  std::int64_t total_columns = 0;  ///< columns of the unsharded tensor
};

namespace detail {
/// Dropout keeps an element if RandomStream::short_bits of its number are at least this: p, rounded up to a multiple of
/// 2^-16. Numbers of 16 instead of 32 bits halve the random words to draw, which take most of the time.
[[nodiscard]] inline std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(std::ceil(p * 0x1p16));
}
/// Global row numbers, i64 [R]. If `index` is empty, row r has number first + r.
template <class Dev>
struct RowNumbers {
  ConstView<Dev> index{};
  std::int64_t first = 0;
};

template <Device Dev>
void check_dropout(ConstView<Dev> x, const RowNumbers<Dev>& rows, const DropoutOptions& options) {
  check(options.probability >= 0 && options.probability < 1,
        "dropout: the probability must be in [0, 1), got ", options.probability);
  check(rows.index.empty() || rows.index.count() == x.rows(), "dropout: ", rows.index.count(),
        " row numbers for ", x.rows(), " rows");
  check(rows.index.empty() || rows.index.dtype() == DType::i64,
        "dropout: row numbers are i64, not ", rows.index.dtype());
  check(options.first_column >= 0 && options.first_column + x.columns() <= options.total_columns,
        "dropout: columns from ", options.first_column, " of ", x.shape(), " are not among ",
        options.total_columns);
}

}  // namespace detail

/// y = keep ? x / (1 - p) : 0 for x, y [.., C], where keep(row, column) = short_bits(number(row) * total_columns +
/// first_column + column) >= 2^16 p. The gradient is the same op. y may alias x.
template <Device Dev>
void dropout(Dev& dev, InView<Dev> x, const detail::RowNumbers<Dev>& rows,
             const DropoutOptions& options, OutView<Dev> y) {
  detail::check_like("dropout: y", y, x);
  detail::check_dropout<Dev>(x, rows, options);
  dropout_on(dev, x, rows, options, y);
}

}  // namespace dhp
