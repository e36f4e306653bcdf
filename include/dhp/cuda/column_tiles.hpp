// Tiles of matrices [rows, columns] in which a thread keeps its columns and walks down rows, with
// per-column values in registers. Neighboring threads read neighboring memory for long and short
// rows.
#pragma once

#include <dhp/cuda/block.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace dhp::cuda {

/// The tiling; depends on the matrix size and on `width`, the elements of a row per thread.
struct ColumnTiles {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int across = 1;  ///< threads side by side in a tile; across * down threads of a block work
  int down = 1;
  std::int64_t tiles_across = 0;
  std::int64_t tiles_down = 0;
  std::int64_t tile_rows = 0;
  int threads = 256;

  [[nodiscard]] Grid grid(std::size_t shared_bytes = 0) const {
    return {tiles_across * tiles_down, threads, shared_bytes};
  }
};

/// Row loads in flight per thread.
inline constexpr int rows_together = 4;

/// width must divide columns. About `most_tiles` tiles at most, unless the columns need more.
[[nodiscard]] inline ColumnTiles column_tiles(std::int64_t rows, std::int64_t columns, int width,
                                              std::int64_t most_tiles = 132 * 8) {
  ColumnTiles tiles{.rows = rows, .columns = columns};
  const std::int64_t packs = columns / width;
  tiles.tiles_across = (packs + warp_size - 1) / warp_size;
  if (rows == 0 || packs == 0) return tiles;
  // At most a warp. Shorter rows are followed by the next row, in the block and in memory.
  tiles.across = static_cast<int>((packs + tiles.tiles_across - 1) / tiles.tiles_across);
  tiles.tiles_across = (packs + tiles.across - 1) / tiles.across;
  tiles.down = tiles.threads / tiles.across;
  const std::int64_t step = std::int64_t{rows_together} * tiles.down;
  const std::int64_t most_down = std::max<std::int64_t>(most_tiles / tiles.tiles_across, 1);
  const std::int64_t wanted = std::clamp<std::int64_t>((rows + step - 1) / step, 1, most_down);
  tiles.tile_rows = ((rows + wanted - 1) / wanted + step - 1) / step * step;
  tiles.tiles_down = (rows + tiles.tile_rows - 1) / tiles.tile_rows;
  return tiles;
}

/// A thread's range: rows from `first` in steps of tiles.down to `last` (exclusive), columns from
/// `column`, `width` of them. Surplus threads are inactive.
struct ColumnPlace {
  template <class B>
  constexpr ColumnPlace(const ColumnTiles& tiles, int width, const B& block)
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
  std::int64_t column;
  std::int64_t first;
  std::int64_t last;
  bool active;
};

/// A thread's loop over its rows. Work: template <int n> struct State holds per-column values;
/// begin<n>(column, state) fills it; load<n>(row, column) reads; use<n>(row, column, loaded, state)
/// computes and may store. Several loads are issued before the first use, to hide memory latency.
template <int width, class Work, class State>
constexpr void walk_rows(const Work& work, const ColumnPlace& place, std::int64_t step,
                         State& state) {
  using Loaded = decltype(work.template load<width>(place.first, place.column));
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

/// A map kernel with per-column vectors.
template <int width, class Work>
struct MapColumns {
  ColumnTiles tiles;
  Work work;

  template <class B>
  constexpr void operator()(B& block) const {
    const ColumnPlace place(tiles, width, block);
    if (!place.active) return;
    typename Work::template State<width> state;
    walk_rows<width>(work, place, tiles.down, state);
  }
};

/// Calls body(integral_constant<int, n>) with the widest load that T and all vectors allow.
template <class T, class Body, class... Element>
void with_width(std::int64_t columns, const Body& body, const Element*... pointers) {
  constexpr int widest = pack_size<T>;
  if (packs_fit<widest>(columns, pointers...)) return body(std::integral_constant<int, widest>());
  if constexpr (widest > 4)  // widths such as a vocabulary's 30522
    if (packs_fit<2>(columns, pointers...)) return body(std::integral_constant<int, 2>());
  body(std::integral_constant<int, 1>());
}

template <KernelDevice Dev, int width, class Work>
void map_columns(Dev& dev, std::int64_t rows, std::int64_t columns,
                 std::integral_constant<int, width>, const Work& work) {
  if (rows == 0 || columns == 0) return;
  const auto tiles = column_tiles(rows, columns, width);
  launch(dev, tiles.grid(), MapColumns<width, Work>{tiles, work});
}

}  // namespace dhp::cuda
