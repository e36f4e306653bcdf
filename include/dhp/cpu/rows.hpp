#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/rows.hpp>

#include <cstring>

namespace dhp::detail::cpu {

inline void check_row_indices(const char* op, ConstView<Cpu> index, std::int64_t rows) {
  const auto* at = index.data<std::int32_t>();
  for (std::int64_t entry = 0; entry < index.count(); ++entry)
    if (at[entry] < 0 || at[entry] >= rows)
      fail(op, ": row index ", at[entry], " is not among ", rows, " rows");
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
void gather_rows_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> index,
                    View<Cpu> y) {
  cpu::check_row_indices("gather_rows", index, x.rows());
  const auto bytes = as_size(x.columns()) * size_of(x.dtype());
  if (bytes == 0) return;
  const auto* at = index.data<std::int32_t>();
  const std::byte* source = x.bytes();
  std::byte* target = y.bytes();
  cpu::for_rows(dev, index.count(), 64, [=](std::int64_t row) {
    std::memcpy(target + as_size(row) * bytes, source + as_size(at[row]) * bytes, bytes);
  });
}
void scatter_add_rows_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> index,
                         View<Cpu> dx) {
  cpu::check_row_indices("scatter_add_rows", index, dx.rows());
  visit_floating(dx.dtype(), [&]<class T, class A>(Tags<T, A>) {
    // Threads share columns, because indices may repeat and each element is summed in row order.
    dev.for_ranges(dy.columns(), 128,
                   [rows = dy.rows(), columns = dy.columns(), at = index.data<std::int32_t>(),
                    gradient = dy.data<T>(), all = dx.data<T>()](auto first, auto last) {
                     for (std::int64_t row = 0; row < rows; ++row) {
                       const T* from = gradient + row * columns;
                       T* to = all + at[row] * columns;
                       for (auto c = first; c < last; ++c)
                         to[c] = static_cast<T>(static_cast<A>(to[c]) + static_cast<A>(from[c]));
                     }
                   });
  });
}

}  // namespace dhp::detail
