#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/rows.hpp>

#include <cstring>

namespace dhp::detail::cpu {

inline void check_row_indices(const char* op, ConstView<Cpu> index, std::int64_t rows) {
  const auto* at = index.data<std::int32_t>();
  for (std::int64_t entry = 0; entry < index.count(); ++entry)
    if (at[entry] < 0 || at[entry] >= rows)
      fail(op, ": row index ", at[entry], " is not among ", rows, " rows");
}
/// Adds row r of `from` to row index[r] - first of `to`, which has elements of To, if there is such a row. Sums in A.
template <class A, class T, class To>
void add_rows(Cpu& dev, ConstView<Cpu> from, ConstView<Cpu> index, std::int64_t first,
              View<Cpu> to) {
  const auto columns = from.columns(), rows = to.rows(), entries = index.count();
  // Threads share columns, because indices may repeat and each element is summed in row order.
  dev.for_ranges(columns, 64, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < entries; ++row) {
      const auto at = index.data<std::int32_t>()[row] - first;
      if (at < 0 || at >= rows) continue;
      const T* const values = from.data<T>() + row * columns;
      To* const sums = to.data<To>() + at * columns;
      for (auto c = begin; c < end; ++c)
        sums[c] = static_cast<To>(static_cast<A>(sums[c]) + static_cast<A>(values[c]));
    }
  });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void copy_columns_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> from, std::int64_t first_from,
                     View<Cpu> to, std::int64_t first_to, std::int64_t columns) {
  const auto element = static_cast<std::int64_t>(size_of(from.dtype()));
  const auto from_stride = from.columns() * element;
  const auto to_stride = to.columns() * element;
  const auto bytes = as_size(columns * element);
  if (bytes == 0) return;
  const std::byte* source = from.bytes() + first_from * element;
  std::byte* target = to.bytes() + first_to * element;
  cpu::for_rows(dev, from.rows(), 256, [=](std::int64_t row) {
    std::memcpy(target + row * to_stride, source + row * from_stride, bytes);
  });
}
/// all: an index without a row of x is an error; otherwise, as in a shard of an embedding, its row of y is 0.
void gather_rows_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> index,
                    std::int64_t first, bool all, View<Cpu> y) {
  if (all) cpu::check_row_indices("gather_rows", index, x.rows());
  const auto bytes = as_size(x.columns()) * size_of(x.dtype());
  if (bytes == 0) return;
  cpu::for_rows(dev, index.count(), 64, [=, rows = x.rows()](std::int64_t row) {
    const auto at = index.data<std::int32_t>()[row] - first;
    auto* const to = y.bytes() + as_size(row) * bytes;
    if (at >= 0 && at < rows) std::memcpy(to, x.bytes() + as_size(at) * bytes, bytes);
    else std::memset(to, 0, bytes);
  });
}
/// Computes dx = beta * dx, then adds the rows. dx has the type of dy or its accumulation type.
void scatter_add_rows_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> index,
                         std::int64_t first, bool all, View<Cpu> dx, double beta) {
  if (all) cpu::check_row_indices("scatter_add_rows", index, dx.rows());
  if (beta == 0) fill_on(dev, dx, 0);
  else if (beta != 1) scale_on(dev, beta, ConstView<Cpu>(), dx);
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    if (dx.dtype() == dtype_of<T>()) cpu::add_rows<A, T, T>(dev, dy, index, first, dx);
    else cpu::add_rows<A, T, A>(dev, dy, index, first, dx);
  });
}

}  // namespace dhp::detail
