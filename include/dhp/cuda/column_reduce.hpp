// Elementwise maps and column sums of matrices [rows, columns], by tiles. A thread keeps its columns and walks down
// rows, with per-column values in registers. Neighboring threads read neighboring memory, for long and short rows. Sums
// have two stages: first over the rows of a tile in the accumulation type, then over tiles in double. Their order
// depends only on the matrix's size and alignment.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace dhp::detail::cuda {

/// The tiling of a matrix. It depends on the matrix's size and on `width`, the number of columns of a thread.
struct ColumnTiles {
  std::int64_t rows = 0, columns = 0;
  static constexpr int max_threads = 512;
  int across = 1;  ///< threads side by side in a tile; a block has across * down active threads
  int down = 1;
  std::int64_t tiles_across = 0, tiles_down = 0, tile_rows = 0;
  int threads = 256;

  [[nodiscard]] Grid grid(std::size_t shared_bytes = 0) const {
    return {tiles_across * tiles_down, threads, shared_bytes};
  }
};

inline constexpr int rows_together = 4;

/// Returns a tiling with at most about `max_tiles` tiles, unless the columns need more. width must divide columns.
[[nodiscard]] inline ColumnTiles column_tiles(std::int64_t rows, std::int64_t columns, int width,
                                              std::int64_t max_tiles = max_sum_parts) {
  ColumnTiles tiles{.rows = rows, .columns = columns};
  const std::int64_t packs = columns / width;
  tiles.tiles_across = (packs + warp_size - 1) / warp_size;
  if (rows == 0 || packs == 0) return tiles;
  // A tile is at most a warp wide. If rows are shorter, the block's next threads take the next row, adjacent in memory.
  tiles.across = static_cast<int>((packs + tiles.tiles_across - 1) / tiles.tiles_across);
  tiles.tiles_across = (packs + tiles.across - 1) / tiles.across;
  tiles.down = tiles.threads / tiles.across;
  const std::int64_t step = std::int64_t{rows_together} * tiles.down;
  const std::int64_t max_down = std::max<std::int64_t>(max_tiles / tiles.tiles_across, 1);
  const std::int64_t wanted = std::clamp<std::int64_t>((rows + step - 1) / step, 1, max_down);
  tiles.tile_rows = ((rows + wanted - 1) / wanted + step - 1) / step * step;
  tiles.tiles_down = (rows + tiles.tile_rows - 1) / tiles.tile_rows;
  return tiles;
}

/// A thread's range: rows from `first` in steps of tiles.down to `last` (exclusive), and `width` columns from `column`
/// on. Surplus threads are inactive.
struct ColumnPlace {
  constexpr ColumnPlace(const ColumnTiles& tiles, int width, const auto& block)
      : tile(block.index() / tiles.tiles_across),
        down(block.thread() / tiles.across),
        column((block.index() % tiles.tiles_across * tiles.across + block.thread() % tiles.across) *
               width),
        first(tile * tiles.tile_rows + down),
        last(tile * tiles.tile_rows + tiles.tile_rows),
        active(down < tiles.down && column < tiles.columns) {
    if (last > tiles.rows) last = tiles.rows;
  }
  std::int64_t tile;
  int down;
  std::int64_t column, first, last;
  bool active;
};

/// Loops over a thread's rows. Work has: template <int n> struct State with per-column values; begin<n>(column, state),
/// optional, fills the state; load<n>(row, column) reads; use<n>(row, column, loaded, state) computes and may store.
/// Several loads are issued before the first use, to hide memory latency.
template <int width, class Work, class State>
constexpr void walk_rows(const Work& work, const ColumnPlace& place, std::int64_t step,
                         State& state) {
  using Loaded = decltype(work.template load<width>(place.first, place.column));
  if constexpr (requires { work.template begin<width>(place.column, state); })
    work.template begin<width>(place.column, state);
  auto row = place.first;
  for (; row + (rows_together - 1) * step < place.last; row += rows_together * step) {
    Loaded loaded[rows_together];
    for (int at = 0; at < rows_together; ++at)
      loaded[at] = work.template load<width>(row + at * step, place.column);
    for (int at = 0; at < rows_together; ++at)
      work.template use<width>(row + at * step, place.column, loaded[at], state);
  }
  for (; row < place.last; row += step)
    work.template use<width>(row, place.column, work.template load<width>(row, place.column),
                             state);
}

template <int width, class Work>
struct MapColumns {
  ColumnTiles tiles;
  Work work;

  constexpr void operator()(auto& block) const {
    const ColumnPlace place(tiles, width, block);
    if (!place.active) return;
    typename Work::template State<width> state;
    walk_rows<width>(work, place, tiles.down, state);
  }
};

/// Calls body(integral_constant<int, n>) with the largest n, columns per thread, for which packs_fit() is true.
template <class T, class Body, class... Element>
void with_column_width(std::int64_t columns, const Body& body, const Element*... pointers) {
  constexpr int widest = pack_size<T>;
  if constexpr (widest > 4)  // 2 divides 30522, BERT's vocabulary
    with_width<widest, 2, 1>(columns, body, pointers...);
  else with_width<widest, 1>(columns, body, pointers...);
}

/// Runs a Work of walk_rows on every element. pointers: all arrays that it loads and stores.
template <class T, KernelDevice Dev, class Work, class... Element>
void map_columns(Dev& dev, std::int64_t rows, std::int64_t columns, const Work& work,
                 const Element*... pointers) {
  if (rows == 0 || columns == 0) return;
  const auto run = [&]<int width>(std::integral_constant<int, width>) {
    const auto tiles = column_tiles(rows, columns, width);
    launch(dev, tiles.grid(), MapColumns<width, Work>{tiles, work});
  };
  with_column_width<T>(columns, run, pointers...);
}

/// Sums columns. Terms: a Work of walk_rows with `sums` and `Total`, whose State<n> has Pack<Total, n> total[sums].
/// output(tile, sum, column, pack) receives the sums of a tile.
template <int width, class Terms, class Output>
struct SumColumns {
  using Total = typename Terms::Total;
  static constexpr int values = Terms::sums * width;
  static constexpr int max_threads = ColumnTiles::max_threads;

  ColumnTiles tiles;
  Terms terms;
  Output output;

  constexpr void operator()(auto& block) const {
    const ColumnPlace place(tiles, width, block);
    typename Terms::template State<width> state{};
    if (place.active) walk_rows<width>(terms, place, tiles.down, state);
    // Reduces the threads of each column along a tree.
    Total* const slots = block.template shared<Total>() + block.thread();
    for (int value = 0; value < values; ++value)
      slots[value * block.threads()] = total_of(state, value);
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
    return tiles.grid(sizeof(Total) * values * as_size(tiles.threads));
  }

 private:
  static constexpr Total total_of(const auto& state, int value) {
    return state.total[value / width].at[value % width];
  }
};

/// Stores partial sums as [tiles, sums, columns].
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
/// Reads partial sums as a matrix [tiles, sums * columns] for the next reduction.
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

  template <int n>
  constexpr Part load(std::int64_t row, std::int64_t column) const {
    return parts[row * columns + column];
  }
  template <int n, class S>
  constexpr void use(std::int64_t, std::int64_t, Part part, S& state) const {
    state.total[0].at[0] += static_cast<double>(part);
  }
};
/// Calls finish(sum, column, value) for each result, in one thread.
template <class Finish>
struct ToFinish {
  Finish finish;
  std::int64_t columns;
  constexpr void operator()(std::int64_t, int, std::int64_t at, const Pack<double, 1>& pack) const {
    finish(static_cast<int>(at / columns), at % columns, pack.at[0]);
  }
};

/// Returns a tiling whose tiles span all rows, for few wide rows or many narrow rows.
[[nodiscard]] inline ColumnTiles one_tile_down(std::int64_t rows, std::int64_t columns) {
  constexpr int threads = ColumnTiles::max_threads, min_across = 8;
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(rows / rows_together + 1));
  ColumnTiles tiles{.rows = rows, .columns = columns};
  tiles.threads = threads;
  tiles.down = static_cast<int>(std::min<std::uint64_t>(wanted, threads / min_across));
  tiles.across = threads / tiles.down;
  tiles.tiles_across = (columns + tiles.across - 1) / tiles.across;
  tiles.tiles_down = 1;
  tiles.tile_rows = rows;
  return tiles;
}

/// Calls finish(sum, column, value) with the sums, in double, of the partial sums [count, sums, columns].
template <int sums, class Total, KernelDevice Dev, class Finish>
void reduce_parts(Dev& dev, std::int64_t count, std::int64_t columns, const Total* parts,
                  const Finish& finish) {
  const SumColumns<1, Parts<Total>, ToFinish<Finish>> second{
      one_tile_down(count, sums * columns), {parts, sums * columns}, {finish, columns}};
  launch(dev, second.grid(), second);
}

/// Sums `terms` over `rows` rows and calls finish(sum, column, value) for each sum, with the value in double. Without
/// rows, each value is 0. pointers: all arrays that terms loads and stores in packs.
template <class T, KernelDevice Dev, class Terms, class Finish, class... Element>
void reduce_columns(Dev& dev, std::int64_t rows, std::int64_t columns, const Terms& terms,
                    const Finish& finish, const Element*... pointers) {
  using Total = typename Terms::Total;
  constexpr int sums = Terms::sums;
  if (columns == 0) return;
  const auto run = [&]<int width>(std::integral_constant<int, width>) {
    const auto tiles = column_tiles(rows, columns, width);
    Tensor<Dev> scratch(dev, dtype_of<Total>(), {tiles.tiles_down, sums, columns});
    Total* const parts = scratch.mut().data();
    if (rows > 0) {
      const SumColumns<width, Terms, ToParts<Total, sums>> first{tiles, terms, {parts, columns}};
      launch(dev, first.grid(), first);
    }
    reduce_parts<sums>(dev, tiles.tiles_down, columns, static_cast<const Total*>(parts), finish);
  };
  with_column_width<T>(columns, run, pointers...);
}

template <class A>
struct StoreColumn {
  A* to;
  constexpr void operator()(int, std::int64_t column, double value) const {
    to[column] = static_cast<A>(value);
  }
};
/// Sets to = beta * to + value; with beta 0, `to` is not read.
template <class A>
struct AddColumn {
  A* to;
  double beta;
  constexpr void operator()(int, std::int64_t column, double value) const {
    const double old = beta == 0 ? 0 : beta * static_cast<double>(to[column]);
    to[column] = static_cast<A>(old + value);
  }
};

/// The terms of plain sums or, if `centered`, of sums of squared distances from the per-column value `middle`.
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
  std::int64_t stride;  ///< elements from one row to the next
  const Total* middle = nullptr;

  template <int n, class S>
  constexpr void begin([[maybe_unused]] std::int64_t column, [[maybe_unused]] S& state) const {
    if constexpr (centered) state.middle = cuda::load<n>(middle + column);
  }
  template <int n>
  constexpr Pack<T, n> load(std::int64_t row, std::int64_t column) const {
    return cuda::load<n>(x + row * stride + column);
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

}  // namespace dhp::detail::cuda
