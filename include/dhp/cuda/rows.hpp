#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/cuda/matrix_walk.hpp>
#include <dhp/cuda/sum_rows.hpp>
#include <dhp/ops/rows.hpp>

namespace dhp::detail::cuda {

/// Sets to[row] = from[index[row] - first], whatever the element type; each Unit takes one instruction. If `from` has
/// no such row, fills the row with `missing`.
template <class Word, int words>
struct MoveRows {
  using Unit = Pack<Word, words>;
  std::int64_t rows;
  std::int64_t units;  // units of a row
  const Unit* from;
  std::int64_t from_stride;
  Unit* to;
  std::int64_t to_stride;
  const std::int32_t* index;  // null means the identity
  std::int64_t first;
  std::int64_t entries;  // number of rows in `from`
  Word missing;

  constexpr void operator()(auto& block) const {
    for (auto at = walk_by_thread(block, units); at.row < rows; at.next()) {
      const auto entry = index == nullptr ? at.row : index[at.row] - first;
      Unit unit;
      if (entry >= 0 && entry < entries) unit = from[entry * from_stride + at.column];
      else
        for (auto& word : unit.at) word = missing;
      to[at.row * to_stride + at.column] = unit;
    }
  }
};

/// The arguments of MoveRows for rows of any element type; strides are in bytes.
struct RowMove {
  const std::byte* from;
  std::int64_t from_stride;
  std::byte* to;
  std::int64_t to_stride;
  std::int64_t bytes;  // bytes of a row
  std::int64_t rows;
  const std::int32_t* index;
  std::int64_t first, entries;
  bool missing_is_nan = false;  ///< fills with set bits, a NaN in each floating type; else with 0
};

/// Moves rows in the largest units that alignment and sizes allow.
template <KernelDevice Dev>
void move_rows(Dev& dev, const RowMove& all) {
  if (all.rows == 0 || all.bytes == 0) return;
  const auto move_by = [&]<class Word, int words>(Pack<Word, words>) {
    using Unit = Pack<Word, words>;
    constexpr auto size = static_cast<std::int64_t>(sizeof(Unit));
    const auto units = all.bytes / size;
    const auto missing = static_cast<Word>(all.missing_is_nan ? ~Word(0) : Word(0));
    launch(dev, grid_for(dev, all.rows * units),
           MoveRows<Word, words>{all.rows, units, reinterpret_cast<const Unit*>(all.from),
                                 all.from_stride / size, reinterpret_cast<Unit*>(all.to),
                                 all.to_stride / size, all.index, all.first, all.entries, missing});
  };
  const auto places = reinterpret_cast<std::uintptr_t>(all.from) |
                      reinterpret_cast<std::uintptr_t>(all.to) |
                      static_cast<std::uintptr_t>(all.from_stride | all.to_stride | all.bytes);
  if (places % 16 == 0) move_by(Pack<std::uint32_t, 4>());
  else if (places % 8 == 0) move_by(Pack<std::uint32_t, 2>());
  else if (places % 4 == 0) move_by(Pack<std::uint32_t, 1>());
  else if (places % 2 == 0) move_by(Pack<std::uint16_t, 1>());
  else move_by(Pack<std::uint8_t, 1>());
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void copy_columns_on(Dev& dev, ConstView<Dev> from, std::int64_t first_from, View<Dev> to,
                     std::int64_t first_to, std::int64_t columns) {
  const auto element = static_cast<std::int64_t>(size_of(from.dtype()));
  cuda::move_rows(dev, {from.bytes() + first_from * element, from.columns() * element,
                        to.bytes() + first_to * element, to.columns() * element, columns * element,
                        from.rows(), nullptr, 0, from.rows()});
}
/// An index without a row of x gives a row of NaN (for integers: -1, or 255) if `all`, else of 0.
template <KernelDevice Dev>
void gather_rows_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> index, std::int64_t first, bool all,
                    View<Dev> y) {
  const auto bytes = y.columns() * static_cast<std::int64_t>(size_of(y.dtype()));
  cuda::move_rows(dev, {x.bytes(), bytes, y.bytes(), bytes, bytes, index.count(), index.data(),
                        first, x.rows(), all});
}
/// Skips rows with an index outside dx. Sums follow cuda/sum_rows.hpp and are rounded once. Their order depends only on
/// the rows of an entry, so shards of a vocabulary give the same bits as the whole table.
template <KernelDevice Dev>
void scatter_add_rows_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> index, std::int64_t first,
                         bool /*all*/, View<Dev> dx, double beta) {
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    if (dx.dtype() == dtype_of<T>()) cuda::sum_rows<T, T>(dev, dy, index, first, beta, dx);
    else cuda::sum_rows<T, A>(dev, dy, index, first, beta, dx);
  });
}

}  // namespace dhp::detail
