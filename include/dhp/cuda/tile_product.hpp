// The tiled matrix product of dhp's gemm and convolution kernels. Tiles of both operands go through shared memory; each
// thread accumulates 4 x 4 results in registers, with ascending k.
#pragma once

#include <dhp/cuda/block.hpp>

namespace dhp::detail::cuda {

/// Computes c(m, n) = sum over k of a(m, k) b(k, n). A is the accumulation type. left(row, k) and right(k, column)
/// return A; take(part, row, column, sum) gets each result. k is summed in parts of `part_size`.
template <class A, class Left, class Right, class Take>
struct TileProduct {
  static constexpr int tile = 64;   // rows and columns of a block
  static constexpr int depth = 16;  // k of one step
  static constexpr int side = 4;    // rows and columns of a thread
  static constexpr int threads = (tile / side) * (tile / side);
  static constexpr int stride = tile + 4;  // padded row length: fewer bank conflicts

  std::int64_t rows, columns, k, part_size;
  Left left;
  Right right;
  Take take;

  [[nodiscard]] Grid grid(std::int64_t parts) const {
    return {parts * tiles(rows) * tiles(columns), threads, 2 * depth * stride * sizeof(A)};
  }

  constexpr void operator()(auto& block) const {
    const auto across = tiles(columns);
    const auto per_part = tiles(rows) * across;
    const auto part = block.index() / per_part;
    const auto place = block.index() % per_part;
    const auto first_row = place / across * tile;
    const auto first_column = place % across * tile;
    const auto last_k = part * part_size + part_size < k ? part * part_size + part_size : k;
    A* const a = block.template shared<A>();
    A* const b = a + depth * stride;
    const int thread = block.thread();
    const int my_row = thread / (tile / side) * side;
    const int my_column = thread % (tile / side) * side;
    A sums[side][side] = {};
    for (auto first_k = part * part_size; first_k < last_k; first_k += depth) {
      for (int at = thread; at < tile * depth; at += threads) {
        // Neighboring threads read neighboring k of a and neighboring columns of b.
        const auto row = first_row + at / depth;
        const auto p = first_k + at % depth;
        a[at % depth * stride + at / depth] = row < rows && p < last_k ? left(row, p) : A(0);
        const auto column = first_column + at % tile;
        const auto q = first_k + at / tile;
        b[at / tile * stride + at % tile] =
            column < columns && q < last_k ? right(q, column) : A(0);
      }
      block.sync();
      for (int p = 0; p < depth; ++p) {
        A mine[side], theirs[side];
        for (int i = 0; i < side; ++i) mine[i] = a[p * stride + my_row + i];
        for (int j = 0; j < side; ++j) theirs[j] = b[p * stride + my_column + j];
        for (int i = 0; i < side; ++i)
          for (int j = 0; j < side; ++j) sums[i][j] += mine[i] * theirs[j];
      }
      block.sync();
    }
    for (int i = 0; i < side; ++i)
      for (int j = 0; j < side; ++j) {
        const auto row = first_row + my_row + i;
        const auto column = first_column + my_column + j;
        if (row < rows && column < columns) take(part, row, column, sums[i][j]);
      }
  }

 private:
  static constexpr std::int64_t tiles(std::int64_t extent) { return (extent + tile - 1) / tile; }
};

template <class A, KernelDevice Dev, class Left, class Right, class Take>
void tile_product(Dev& dev, std::int64_t rows, std::int64_t columns, std::int64_t k,
                  const Left& left, const Right& right, const Take& take, std::int64_t parts = 1) {
  if (rows == 0 || columns == 0) return;
  const auto part_size = (k + parts - 1) / parts;
  const TileProduct<A, Left, Right, Take> product{rows, columns, k, part_size, left, right, take};
  launch(dev, product.grid(parts), product);
}

}  // namespace dhp::detail::cuda
