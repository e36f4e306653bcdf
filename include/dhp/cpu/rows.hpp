#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/rows.hpp>

#include <cstring>

namespace dhp::cpu {

template <class T>
struct Rows {
  static void scatter_add(Cpu& dev, const T* dy, const std::int32_t* index, std::int64_t rows,
                          std::int64_t columns, T* dx);
  static void add_to_all(Cpu& dev, const T* vector, std::int64_t rows, std::int64_t columns, T* y);
};

template <class T>
void Rows<T>::scatter_add(Cpu& dev, const T* dy, const std::int32_t* index, std::int64_t rows,
                          std::int64_t columns, T* dx) {
  using A = Accumulator<T>;
  // Parallel over columns: rows may repeat, and each element keeps the row order.
  dev.for_ranges(columns, 128, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* from = dy + row * columns;
      T* to = dx + index[row] * columns;
      for (auto at = first; at < last; ++at)
        to[at] = static_cast<T>(static_cast<A>(to[at]) + static_cast<A>(from[at]));
    }
  });
}

template <class T>
void Rows<T>::add_to_all(Cpu& dev, const T* vector, std::int64_t rows, std::int64_t columns, T* y) {
  using A = Accumulator<T>;
  dev.for_ranges(rows, 64, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row)
      for (std::int64_t at = 0; at < columns; ++at) {
        T& element = y[row * columns + at];
        element = static_cast<T>(static_cast<A>(element) + static_cast<A>(vector[at]));
      }
  });
}

inline void check_row_indices(const char* op, ConstView<Cpu> index, std::int64_t rows) {
  const auto* at = index.data<std::int32_t>();
  for (std::int64_t entry = 0; entry < index.count(); ++entry)
    if (at[entry] < 0 || at[entry] >= rows)
      fail(op, ": row index ", at[entry], " is not among ", rows, " rows");
}

}  // namespace dhp::cpu

namespace dhp {

inline void copy_columns_on(Cpu& dev, ConstView<Cpu> from, std::int64_t first_from, View<Cpu> to,
                            std::int64_t first_to, std::int64_t columns) {
  const auto element = static_cast<std::int64_t>(size_of(from.dtype()));
  const auto from_stride = from.columns() * element;
  const auto to_stride = to.columns() * element;
  const auto bytes = static_cast<std::size_t>(columns * element);
  if (bytes == 0) return;
  const std::byte* source = from.bytes() + first_from * element;
  std::byte* target = to.bytes() + first_to * element;
  dev.for_ranges(from.rows(), 256, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row)
      std::memcpy(target + row * to_stride, source + row * from_stride, bytes);
  });
}
inline void gather_rows_on(Cpu& dev, ConstView<Cpu> x, ConstView<Cpu> index, View<Cpu> y) {
  cpu::check_row_indices("gather_rows", index, x.rows());
  const auto bytes = static_cast<std::size_t>(x.columns()) * size_of(x.dtype());
  if (bytes == 0) return;
  const auto* at = index.data<std::int32_t>();
  const std::byte* source = x.bytes();
  std::byte* target = y.bytes();
  dev.for_ranges(index.count(), 64, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row)
      std::memcpy(target + static_cast<std::size_t>(row) * bytes,
                  source + static_cast<std::size_t>(at[row]) * bytes, bytes);
  });
}
inline void scatter_add_rows_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> index, View<Cpu> dx) {
  cpu::check_row_indices("scatter_add_rows", index, dx.rows());
  visit_floating(dx.dtype(), [&]<class T>(Tag<T>) {
    cpu::Rows<T>::scatter_add(dev, dy.data<T>(), index.data<std::int32_t>(), dy.rows(),
                              dy.columns(), dx.data<T>());
  });
}
inline void add_to_rows_on(Cpu& dev, ConstView<Cpu> vector, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cpu::Rows<T>::add_to_all(dev, vector.data<T>(), y.rows(), y.columns(), y.data<T>());
  });
}

}  // namespace dhp
