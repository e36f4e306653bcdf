// Dropout on the GPU. One Philox block serves eight elements, and no mask is stored.
#pragma once

#include <dhp/cuda/matrix_walk.hpp>
#include <dhp/ops/dropout.hpp>

namespace dhp::detail::cuda {

/// The mask of dropout, recomputed by each kernel.
template <class T>
struct DropoutMask {
  using A = Accumulator<T>;
  RandomStream random;
  std::uint32_t threshold;  // dropout_threshold
  A scale;
  const std::int64_t* index;  // row numbers, or null
  std::int64_t first, total_columns, first_column;

  /// Returns the random index of a row's first element.
  [[nodiscard]] constexpr std::uint64_t number(std::int64_t row) const {
    const auto global = index == nullptr ? first + row : index[row];
    return static_cast<std::uint64_t>(global * total_columns + first_column);
  }
  /// Returns x * scale, unrounded, or 0 if x is dropped. at: the element's position among the eight of a Philox block.
  [[nodiscard]] constexpr A apply(const std::array<std::uint32_t, 4>& words, int at, A x) const {
    const auto number = RandomStream::short_bits(words, as_size(at));
    return number >= threshold ? x * scale : A(0);
  }
  /// Applies dropout to n neighboring elements, without rounding. The first element's random index must be a multiple
  /// of n, so that one Philox block has the numbers of all n. With probability 0 nothing is drawn.
  template <int n>
  constexpr void drop(const RandomStream& from, std::uint64_t number_of_first,
                      Pack<A, n>& x) const {
    static_assert(n == 1 || n == 2 || n == 4 || n == 8);
    if (threshold == 0) return;
    const auto words = from.block(number_of_first / 8);
    const auto skip = number_of_first % 8;
    for (int at = 0; at < n; ++at) {
      auto dropped = apply(words, at, x.at[at]);
      // Selects by comparing, because registers cannot be indexed.
      for (int start = n; start < 8; start += n)
        if (skip == static_cast<std::uint64_t>(start)) dropped = apply(words, start + at, x.at[at]);
      x.at[at] = dropped;
    }
  }
};

/// Handles rows of whole packs. Each row's first random index must be a multiple of the pack's width.
template <class T, int width>
struct DropoutPacks {
  DropoutMask<T> mask;
  std::int64_t rows;
  std::int64_t packs;  // packs of a row
  const T* x;
  T* y;

  constexpr void operator()(auto& block) const {
    const auto random = mask.random.loaded();
    for (MatrixWalk at = walk_by_thread(block, packs); at.row < rows; at.next()) {
      const auto place = (at.row * packs + at.column) * width;
      const auto first = mask.number(at.row) + static_cast<std::uint64_t>(at.column * width);
      const auto in = load<width>(x + place);
      Pack<Accumulator<T>, width> kept;
      for (int n = 0; n < width; ++n) kept.at[n] = static_cast<Accumulator<T>>(in.at[n]);
      mask.template drop<width>(random, first, kept);
      store_rounded<T>(y + place, kept);
    }
  }
};

/// Handles any rows: one thread for each Philox block, clipped to the row.
template <class T>
struct DropoutElements {
  DropoutMask<T> mask;
  std::int64_t rows, columns;
  const T* x;
  T* y;

  constexpr void operator()(auto& block) const {
    const auto random = mask.random.loaded();
    for (MatrixWalk at = walk_by_thread(block, blocks_a_row()); at.row < rows; at.next()) {
      const auto number = mask.number(at.row);
      const auto words = random.block(number / 8 + static_cast<std::uint64_t>(at.column));
      const auto first = 8 * at.column - static_cast<std::int64_t>(number % 8);
      for (int n = 0; n < 8; ++n) {
        const auto column = first + n;
        if (column < 0 || column >= columns) continue;
        const auto place = at.row * columns + column;
        y[place] = static_cast<T>(mask.apply(words, n, static_cast<Accumulator<T>>(x[place])));
      }
    }
  }
  /// Returns the number of Philox blocks of a row, enough for any alignment of its first element.
  [[nodiscard]] constexpr std::int64_t blocks_a_row() const { return (columns + 14) / 8; }
};

template <class T, KernelDevice Dev>
[[nodiscard]] DropoutMask<T> dropout_mask(const RowNumbers<Dev>& rows,
                                          const DropoutOptions& options) {
  return {.random = options.random,
          .threshold = dropout_threshold(options.probability),
          .scale = static_cast<Accumulator<T>>(1.0 / (1.0 - options.probability)),
          .index = rows.index.empty() ? nullptr : rows.index.template data<std::int64_t>(),
          .first = rows.first,
          .total_columns = options.total_columns,
          .first_column = options.first_column};
}

template <KernelDevice Dev, class T>
void dropout(Dev& dev, const DropoutMask<T>& mask, std::int64_t rows, std::int64_t columns,
             const T* x, T* y) {
  constexpr int width = pack_size<T>;
  const bool aligned = mask.total_columns % width == 0 && mask.first_column % width == 0;
  if (aligned && packs_fit<width>(columns, x, y)) {
    const auto packs = columns / width;
    launch(dev, grid_for(dev, rows * packs), DropoutPacks<T, width>{mask, rows, packs, x, y});
  } else {
    const DropoutElements<T> kernel{mask, rows, columns, x, y};
    launch(dev, grid_for(dev, rows * kernel.blocks_a_row()), kernel);
  }
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void dropout_on(Dev& dev, ConstView<Dev> x, const RowNumbers<Dev>& rows,
                const DropoutOptions& options, View<Dev> y) {
  if (x.count() == 0) return;
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    const auto mask = cuda::dropout_mask<T>(rows, options);
    // Treats whole rows with consecutive numbers as one long row.
    const bool one = mask.index == nullptr && x.columns() == options.total_columns;
    cuda::dropout(dev, mask, one ? 1 : x.rows(), one ? x.count() : x.columns(),
                  x.template data<T>(), y.template data<T>());
  });
}

}  // namespace dhp::detail
