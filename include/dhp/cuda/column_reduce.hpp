// Several column sums of a matrix in two stages: row tiles in the accumulation type, then tile sums
// in double. The order depends only on the matrix's size and alignment.
#pragma once

#include <dhp/cuda/column_tiles.hpp>
#include <dhp/tensor/tensor.hpp>

#include <bit>

namespace dhp::cuda {

/// Terms: a Work of walk_rows with `sums` and `Total`, whose State<n> has Pack<Total, n>
/// total[sums]. output(tile, sum, column, pack) receives the sum of a tile.
template <int width, class Terms, class Output>
struct SumColumns {
  using Total = typename Terms::Total;
  static constexpr int values = Terms::sums * width;

  ColumnTiles tiles;
  Terms terms;
  Output output;

  template <class B>
  constexpr void operator()(B& block) const {
    const ColumnPlace place(tiles, width, block);
    typename Terms::template State<width> state{};
    if (place.active) walk_rows<width>(terms, place, tiles.down, state);
    // Tree reduction over the threads of a column.
    Total* const slots = block.template shared<Total>() + block.thread();
    for (int value = 0; value < values; ++value) slots[value * block.threads()] = of(state, value);
    block.sync();
    for (int left = tiles.down; left > 1;) {
      const int half = (left + 1) / 2;
      if (place.down < left - half)
        for (int value = 0; value < values; ++value)
          slots[value * block.threads()] += slots[value * block.threads() + half * tiles.across];
      left = half;
      block.sync();
    }
    if (!place.active || place.down != 0) return;
    for (int sum = 0; sum < Terms::sums; ++sum) {
      Pack<Total, width> pack;
      for (int at = 0; at < width; ++at) pack.at[at] = slots[(sum * width + at) * block.threads()];
      output(place.tile, sum, place.column, pack);
    }
  }

  [[nodiscard]] Grid grid() const {
    return tiles.grid(sizeof(Total) * values * static_cast<std::size_t>(tiles.threads));
  }

 private:
  template <class State>
  static constexpr Total of(const State& state, int value) {
    return state.total[value / width].at[value % width];
  }
};

/// Partial sums [tiles, sums, columns].
template <class Total, int sums>
struct ToParts {
  Total* parts;
  std::int64_t columns;
  template <int width>
  constexpr void operator()(std::int64_t tile, int sum, std::int64_t column,
                            const Pack<Total, width>& pack) const {
    store<width>(parts + (tile * sums + sum) * columns + column, pack);
  }
};
/// The partial sums as a matrix [tiles, sums * columns] for the next reduction.
template <class Part>
struct Parts {
  using Total = double;
  static constexpr int sums = 1;
  template <int n>
  struct State {
    Pack<double, n> total[1];
  };
  const Part* parts;
  std::int64_t columns;

  template <int n, class S>
  constexpr void begin(std::int64_t, S&) const {}
  template <int n>
  constexpr Part load(std::int64_t row, std::int64_t column) const {
    return parts[row * columns + column];
  }
  template <int n, class S>
  constexpr void use(std::int64_t, std::int64_t, Part part, S& state) const {
    state.total[0].at[0] += static_cast<double>(part);
  }
};
/// finish(sum, column, value) receives each result in one thread.
template <class Finish>
struct ToFinish {
  Finish finish;
  std::int64_t columns;
  constexpr void operator()(std::int64_t, int, std::int64_t at, const Pack<double, 1>& pack) const {
    finish(static_cast<int>(at / columns), at % columns, pack.at[0]);
  }
};

/// One tile down all rows: for few wide rows, or many narrow ones.
[[nodiscard]] inline ColumnTiles one_tile_down(std::int64_t rows, std::int64_t columns) {
  constexpr int threads = 512, least_across = 8;
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(rows / rows_together + 1));
  ColumnTiles tiles{.rows = rows, .columns = columns};
  tiles.threads = threads;
  tiles.down = static_cast<int>(std::min<std::uint64_t>(wanted, threads / least_across));
  tiles.across = threads / tiles.down;
  tiles.tiles_across = (columns + tiles.across - 1) / tiles.across;
  tiles.tiles_down = 1;
  tiles.tile_rows = rows;
  return tiles;
}

/// Calls finish(sum, column, value) for each of terms' sums over `rows` rows, value in double; 0
/// without rows.
template <KernelDevice Dev, int width, class Terms, class Finish>
void reduce_columns(Dev& dev, std::int64_t rows, std::int64_t columns,
                    std::integral_constant<int, width>, const Terms& terms, const Finish& finish) {
  using Total = typename Terms::Total;
  constexpr int sums = Terms::sums;
  if (columns == 0) return;
  const auto tiles = column_tiles(rows, columns, width);
  Tensor<Dev> scratch(dev, dtype_of<Total>(), {tiles.tiles_down, sums, columns});
  Total* const parts = scratch.mut().template data<Total>();
  if (rows > 0) {
    const SumColumns<width, Terms, ToParts<Total, sums>> first{tiles, terms, {parts, columns}};
    launch(dev, first.grid(), first);
  }
  const SumColumns<1, Parts<Total>, ToFinish<Finish>> second{
      one_tile_down(tiles.tiles_down, sums * columns), {parts, sums * columns}, {finish, columns}};
  launch(dev, second.grid(), second);
}

/// Stores one sum: to = value.
template <class A>
struct StoreColumn {
  A* to;
  constexpr void operator()(int, std::int64_t column, double value) const {
    to[column] = static_cast<A>(value);
  }
};
/// to = beta * to + value; with beta 0 `to` is not read.
template <class A>
struct AddColumn {
  A* to;
  double beta;
  constexpr void operator()(int, std::int64_t column, double value) const {
    const double old = beta == 0 ? 0 : beta * static_cast<double>(to[column]);
    to[column] = static_cast<A>(old + value);
  }
};

/// Plain sums, or with `centered` sums of squared distances from a per-column value.
template <class T, bool centered = false>
struct ColumnTerms {
  using Total = Accumulator<T>;
  static constexpr int sums = 1;
  struct Nothing {};
  template <int n>
  struct State {
    Pack<Total, n> total[1];
    [[no_unique_address]] std::conditional_t<centered, Pack<Total, n>, Nothing> middle;
  };
  const T* x;
  std::int64_t columns;
  const Total* middle = nullptr;

  template <int n, class S>
  constexpr void begin([[maybe_unused]] std::int64_t column, [[maybe_unused]] S& state) const {
    if constexpr (centered) state.middle = cuda::load<n>(middle + column);
  }
  template <int n>
  constexpr Pack<T, n> load(std::int64_t row, std::int64_t column) const {
    return cuda::load<n>(x + row * columns + column);
  }
  template <int n, class S>
  constexpr void use(std::int64_t, std::int64_t, const Pack<T, n>& in, S& state) const {
    for (int at = 0; at < n; ++at) {
      const Total value = static_cast<Total>(in.at[at]);
      if constexpr (centered) {
        const Total deviation = value - state.middle.at[at];
        state.total[0].at[at] += deviation * deviation;
      } else {
        state.total[0].at[at] += value;
      }
    }
  }
};

}  // namespace dhp::cuda
