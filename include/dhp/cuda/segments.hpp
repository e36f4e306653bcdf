// Segments on the GPU: blocks take pieces of tiles in a grid-stride loop. Squared norms are summed
// per piece, then per segment in piece order: two launches for any number of segments.
#pragma once

#include <dhp/cuda/reduce.hpp>
#include <dhp/ops/segments.hpp>

namespace dhp::cuda {

/// The part of a tile that a block processes at once. `tile` is the whole tile.
struct Piece {
  SegmentTile tile;
  std::int64_t first;  ///< in the flat numbering
  std::int64_t count;  ///< 0 past the end of the tile

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

/// All pieces of a table.
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
  template <class Dev>
  [[nodiscard]] Grid grid(const Dev& dev) const {
    return {std::clamp<std::int64_t>(count(), 1, most_blocks(dev))};
  }
};
template <class Dev>
[[nodiscard]] Pieces pieces_of(const SegmentTable<Dev>& table) {
  return {table.tiles(), table.tile_count()};
}

/// parts[piece] = the sum of squares of its elements.
template <class A>
struct SquarePieces {
  Pieces pieces;
  TileSource<A> source;
  double* parts;

  template <class B>
  constexpr void operator()(B& block) const {
    for (auto at = block.index(); at < pieces.count(); at += block.blocks()) {
      const auto piece = pieces.at(at);
      double total = share_of_sum<pack_size<A>>(piece.from(source), piece.count, block.thread(),
                                                block.threads(), Square());
      total = block_reduce(block, total, block.template shared<double>());
      if (block.thread() == 0) parts[at] = total;
    }
  }
};

/// squares[parameter] = the sum of its pieces, one block per segment.
struct SumPieces {
  const SegmentTiles* segments;
  const double* parts;
  double* squares;

  template <class B>
  constexpr void operator()(B& block) const {
    const auto& segment = segments[block.index()];
    double total = 0;
    for (auto at = segment.first * Pieces::per_tile + block.thread();
         at < segment.last * Pieces::per_tile; at += block.threads())
      total += parts[at];
    total = block_reduce(block, total, block.template shared<double>());
    if (block.thread() == 0) squares[segment.parameter] = total;
  }
};

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
void segment_squares_on(Dev& dev, const SegmentTable<Dev>& table, ConstView<Dev> x, bool of_weights,
                        View<Dev> squares) {
  if (table.segment_count() == 0) return;
  visit_accumulator(table.accumulation(), [&]<class A>(Tag<A>) {
    constexpr std::size_t shared = sizeof(double) * cuda::block_reduce_scratch;
    const auto pieces = cuda::pieces_of(table);
    Tensor<Dev> scratch(dev, DType::f64, {pieces.count()});
    double* const parts = scratch.mut().template data<double>();
    auto grid = pieces.grid(dev);
    grid.shared_bytes = shared;
    launch(dev, grid, cuda::SquarePieces<A>{pieces, {ops::data_or_null<A>(x), of_weights}, parts});
    launch(dev, cuda::Grid{table.segment_count(), 256, shared},
           cuda::SumPieces{table.segments(), parts, squares.template data<double>()});
  });
}

}  // namespace dhp
