// Segments on the GPU: blocks take tiles, or pieces of tiles, in a grid-stride loop. Squared norms are summed for each
// tile, then for each parameter, in a fixed order: two launches for any number of segments.
#pragma once

#include <dhp/cuda/reduce.hpp>
#include <dhp/ops/segments.hpp>

namespace dhp::detail::cuda {

/// The part of `tile` that one block processes.
struct Piece {
  SegmentTile tile;
  std::int64_t first;  ///< flat index of the first element
  std::int64_t count;  ///< number of elements; 0 past the end of the tile

  /// V: the type of the tile's values.
  template <class V>
  [[nodiscard]] constexpr V* values() const {
    return reinterpret_cast<V*>(tile.value) + (first - tile.first);
  }
  template <class A>
  [[nodiscard]] constexpr const A* from(const TileSource<A>& source) const {
    return source(tile) + (first - tile.first);
  }
};

struct Pieces {
  static constexpr std::int64_t per_tile = 4;
  static constexpr std::int64_t size = segment_tile / per_tile;

  const SegmentTile* tiles;
  std::int64_t tile_count;

  [[nodiscard]] constexpr std::int64_t count() const { return tile_count * per_tile; }
  [[nodiscard]] constexpr Piece at(std::int64_t index) const {
    const auto& tile = tiles[index / per_tile];
    const auto first = tile.first + index % per_tile * size;
    const auto left = tile.last - first;
    return {tile, first, left < 0 ? 0 : left < size ? left : size};
  }
  [[nodiscard]] Grid grid(const auto& dev) const {
    return {std::clamp<std::int64_t>(count(), 1, max_blocks(dev))};
  }
};
template <class Dev>
[[nodiscard]] Pieces pieces_of(const SegmentTable<Dev>& table) {
  return {table.tiles(), table.tile_count()};
}

/// Returns a grid for kernels whose blocks sum whole tiles, in double.
template <class Dev>
[[nodiscard]] Grid grid_of_tiles(const Dev& dev, const SegmentTable<Dev>& table) {
  return {std::min(table.tile_count(), max_blocks(dev)), 256,
          sizeof(double) * block_reduce_scratch};
}

/// Sets sums[tile.sum] to the sum of squares of the tile's elements.
template <class A>
struct SquareTiles {
  const SegmentTile* tiles;
  std::int64_t count;
  TileSource<A> source;
  double* sums;

  constexpr void operator()(auto& block) const {
    for (auto at = block.index(); at < count; at += block.blocks()) {
      const auto& tile = tiles[at];
      double total = share_of_sum<pack_size<A>>(source(tile), tile.last - tile.first,
                                                block.thread(), block.threads(), Square());
      total = block_reduce(block, total, block.template shared<double>());
      if (block.thread() == 0) sums[tile.sum] = total;
    }
  }
};

/// Sets squares[parameter] to the total of the sums of its tiles; one block works on a parameter.
struct SumTiles {
  const TileSums* parameters;
  const double* sums;
  std::int64_t stride;  // elements from one group to the next
  double* squares;

  constexpr void operator()(auto& block) const {
    const auto& of = parameters[block.index()];
    double total = 0;
    for (auto at = of.first + block.thread(); at < of.last; at += block.threads())
      total += sums[at];
    total = block_reduce(block, total, block.template shared<double>());
    if (block.thread() == 0) squares[of.group * stride + of.parameter] = total;
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void tile_squares_on(Dev& dev, const SegmentTable<Dev>& table, ConstView<Dev> x, bool of_weights,
                     View<Dev> sums) {
  visit_accumulator(table.accumulation(), [&]<class A>(TypeTag<A>) {
    launch(dev, cuda::grid_of_tiles(dev, table),
           cuda::SquareTiles<A>{
               table.tiles(), table.tile_count(), {data_or_null<A>(x), of_weights}, sums.data()});
  });
}
template <KernelDevice Dev>
void sum_tiles_on(Dev& dev, const SegmentTable<Dev>& table, ConstView<Dev> sums, View<Dev> squares,
                  std::int64_t stride) {
  const std::size_t shared = sizeof(double) * cuda::block_reduce_scratch;
  launch(dev, cuda::Grid{table.summed_parameters(), 256, shared},
         cuda::SumTiles{table.sums(), sums.data(), stride, squares.data()});
}

}  // namespace dhp::detail
