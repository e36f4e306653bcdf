// Dropout on the GPU: a thread draws one Philox block for four elements; no mask is stored.
#pragma once

#include <dhp/cuda/matrix_walk.hpp>
#include <dhp/ops/dropout.hpp>

#include <cmath>

namespace dhp::detail::cuda {

/// The mask that all dropout kernels use.
template <class T>
struct DropoutMask {
  using A = Accumulator<T>;
  RandomStream random;
  std::uint32_t threshold;  // an element is kept if its word's upper 24 bits are at least this
  A scale;
  const std::int64_t* index;  // row numbers, or null
  std::int64_t first, total_columns, first_column;

  /// Returns the random index of a row's first element.
  [[nodiscard]] constexpr std::uint64_t number(std::int64_t row) const {
    const auto global = index == nullptr ? first + row : index[row];
    return static_cast<std::uint64_t>(global * total_columns + first_column);
  }
  /// Returns x scaled and unrounded, or 0.
  [[nodiscard]] constexpr A apply(std::uint32_t word, A x) const {
    const bool keep = (word >> 8) >= threshold;
    return keep ? x * scale : A(0);
  }
  [[nodiscard]] constexpr T rounded(std::uint32_t word, T x) const {
    return static_cast<T>(apply(word, static_cast<A>(x)));
  }
  /// Applies dropout to n neighboring elements, without rounding. The first element's random index must be a multiple
  /// of n, so that one Philox block has all numbers. With probability 0 nothing is drawn.
  template <int n>
  constexpr void drop(const RandomStream& from, std::uint64_t number_of_first,
                      Pack<A, n>& x) const {
    static_assert(n == 1 || n == 2 || n == 4);
    if (threshold == 0) return;
    const auto words = from.block(number_of_first / 4);
    const auto skip = number_of_first % 4;
    for (int at = 0; at < n; ++at) {
      auto word = words[static_cast<std::size_t>(at)];
      // selects by comparing, because registers cannot be indexed
      for (int start = n; start < 4; start += n)
        if (skip == static_cast<std::uint64_t>(start))
          word = words[static_cast<std::size_t>(start + at)];
      x.at[at] = apply(word, x.at[at]);
    }
  }
  /// Returns the random stream with the step loaded once, not once for each Philox block.
  [[nodiscard]] constexpr RandomStream stream() const {
    return {.seed = random.seed, .series = random.now(), .use = random.use};
  }
};

/// Handles rows of whole packs whose random indices start at multiples of four.
template <class T, int width>
struct DropoutPacks {
  static_assert(width % 4 == 0);
  DropoutMask<T> mask;
  std::int64_t rows;
  std::int64_t packs;  // packs of a row
  const T* x;
  T* y;

  constexpr void operator()(auto& block) const {
    const auto random = mask.stream();
    for (MatrixWalk at = walk_by_thread(block, packs); at.row < rows; at.next()) {
      const auto place = (at.row * packs + at.column) * width;
      const auto first = mask.number(at.row) + static_cast<std::uint64_t>(at.column * width);
      const auto in = load<width>(x + place);
      Pack<T, width> out;
      for (int four = 0; four < width; four += 4) {
        const auto words = random.block((first + static_cast<std::uint64_t>(four)) / 4);
        for (int word = 0; word < 4; ++word)
          out.at[four + word] =
              mask.rounded(words[static_cast<std::size_t>(word)], in.at[four + word]);
      }
      store<width>(y + place, out);
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
    const auto random = mask.stream();
    for (MatrixWalk at = walk_by_thread(block, blocks_a_row()); at.row < rows; at.next()) {
      const auto number = mask.number(at.row);
      const auto words = random.block(number / 4 + static_cast<std::uint64_t>(at.column));
      const auto first = 4 * at.column - static_cast<std::int64_t>(number % 4);
      for (int word = 0; word < 4; ++word) {
        const auto column = first + word;
        if (column < 0 || column >= columns) continue;
        const auto place = at.row * columns + column;
        y[place] = mask.rounded(words[static_cast<std::size_t>(word)], x[place]);
      }
    }
  }
  /// Returns the blocks of a row, enough for any alignment of its first element.
  [[nodiscard]] constexpr std::int64_t blocks_a_row() const { return (columns + 6) / 4; }
};

template <class T, KernelDevice Dev>
[[nodiscard]] DropoutMask<T> dropout_mask(const RowNumbers<Dev>& rows,
                                          const DropoutOptions& options) {
  return {.random = options.random,
          .threshold = static_cast<std::uint32_t>(std::ceil(options.probability * 0x1p24)),
          .scale = static_cast<Accumulator<T>>(1.0 / (1.0 - options.probability)),
          .index = rows.index.empty() ? nullptr : rows.index.template data<std::int64_t>(),
          .first = rows.first,
          .total_columns = options.total_columns,
          .first_column = options.first_column};
}

template <KernelDevice Dev, class T>
void dropout(Dev& dev, const DropoutMask<T>& mask, std::int64_t rows, std::int64_t columns,
             const T* x, T* y) {
  constexpr int width = std::max(4, pack_size<T>);
  const bool aligned = mask.total_columns % 4 == 0 && mask.first_column % 4 == 0;
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
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    const auto mask = cuda::dropout_mask<T>(rows, options);
    // Treats contiguous rows as one long row.
    const bool one = mask.index == nullptr && x.columns() == options.total_columns;
    cuda::dropout(dev, mask, one ? 1 : x.rows(), one ? x.count() : x.columns(),
                  x.template data<T>(), y.template data<T>());
  });
}

}  // namespace dhp::detail
