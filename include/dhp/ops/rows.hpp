// Row and column ops: gather_rows, scatter_add_rows, copy_columns.
#pragma once

#include <dhp/core/function_ref.hpp>
#include <dhp/tensor/view.hpp>

#include <algorithm>

namespace dhp {

namespace detail {
/// Calls body(row range) for each of `groups` groups of equally many rows. 0 counts as one group.
inline void for_row_groups(int groups, std::int64_t rows, FunctionRef<void(Range)> body) {
  groups = std::max(groups, 1);
  const auto each = rows / groups;
  check(each * groups == rows, "cannot cut ", rows, " rows into ", groups,
        " groups of equally many");
  for (std::int64_t at = 0; at < groups; ++at) body({at * each, (at + 1) * each});
}
/// Throws Error unless index is i32 and `rows` has one row per index, with the columns and the type of `all`.
template <Device Dev>
void check_indexed_rows(const char* op, InView<Dev> index, InView<Dev> rows, InView<Dev> all) {
  check(index.dtype() == DType::i32, op, ": the index is i32, got ", index.dtype());
  check(rows.count() == index.count() * all.columns() && rows.columns() == all.columns() &&
            rows.dtype() == all.dtype(),
        op, ": ", rows.shape(), " of ", rows.dtype(), " are not ", index.count(), " rows of ",
        all.shape(), " of ", all.dtype());
}
}  // namespace detail

/// Copies `columns` columns of `from` [R, C1], from column first_from on, to column first_to of `to` [R, C2].
template <Device Dev>
void copy_columns(Dev& dev, InView<Dev> from, std::int64_t first_from, OutView<Dev> to,
                  std::int64_t first_to, std::int64_t columns) {
  check(from.dtype() == to.dtype() && from.rows() == to.rows(), "copy_columns: ", from.shape(),
        " of ", from.dtype(), " and ", to.shape(), " of ", to.dtype(), " have different rows");
  check(columns >= 0 && first_from >= 0 && first_from <= from.columns() - columns &&
            first_to >= 0 && first_to <= to.columns() - columns,
        "copy_columns: ", columns, " columns from ", first_from, " of ", from.shape(), " to ",
        first_to, " of ", to.shape());
  copy_columns_on(dev, from, first_from, to, first_to, columns);
}

/// y[m] = x[index[m]]; x [R, C], index i32 [M], y [M, C]. For an index outside [0, R), a CPU throws Error; a GPU, whose
/// kernels cannot throw, writes NaN (in integers: -1 or 255).
template <Device Dev>
void gather_rows(Dev& dev, InView<Dev> x, InView<Dev> index, OutView<Dev> y) {
  detail::check_indexed_rows<Dev>("gather_rows", index, y, x);
  gather_rows_on(dev, x, index, 0, true, y);
}

/// dx[index[m]] += dy[m], in an order that depends only on index; dx [R, C], index i32 [M], dy [M, C]. For an index
/// outside [0, R), a CPU throws Error and leaves dx unchanged; a GPU skips the row.
template <Device Dev>
void scatter_add_rows(Dev& dev, InView<Dev> dy, InView<Dev> index, OutView<Dev> dx) {
  detail::check_indexed_rows<Dev>("scatter_add_rows", index, dy, dx);
  scatter_add_rows_on(dev, dy, index, 0, true, dx, 1);
}

}  // namespace dhp
