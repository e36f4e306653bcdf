// Grid-stride loops over the elements of a matrix, by thread or by warp.
#pragma once

#include <dhp/cuda/block.hpp>

namespace dhp::detail::cuda {

/// Visits positions first, first + step, ... of a row-major matrix; divides only at the start. columns must be at least
/// 1. Use: `for (MatrixWalk at = walk_by_thread(block, columns); at.row < rows; at.next())`.
class MatrixWalk {
 public:
  constexpr MatrixWalk(std::int64_t first, std::int64_t step, std::int64_t columns)
      : row(first / columns),
        column(first % columns),
        columns_(columns),
        rows_a_step_(step / columns),
        columns_a_step_(step % columns) {}
  constexpr void next() {
    row += rows_a_step_;
    column += columns_a_step_;
    if (column >= columns_) {
      column -= columns_;
      ++row;
    }
  }

  std::int64_t row, column;

 private:
  std::int64_t columns_, rows_a_step_, columns_a_step_;
};

[[nodiscard]] constexpr MatrixWalk walk_by_thread(const auto& block, std::int64_t columns) {
  return {grid_thread(block), grid_threads(block), columns};
}
[[nodiscard]] constexpr MatrixWalk walk_by_warp(const auto& block, std::int64_t columns) {
  return {grid_thread(block) / warp_size, grid_threads(block) / warp_size, columns};
}
[[nodiscard]] constexpr MatrixWalk walk_by_block(const auto& block, std::int64_t columns) {
  return {block.index(), block.blocks(), columns};
}

}  // namespace dhp::detail::cuda
