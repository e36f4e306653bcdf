// Gathers a matrix whose columns are split over a group, so that each rank has all of it.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/ops/rows.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp {

/// x [.., part_of(columns, size, rank)], y [.., columns]. Uneven parts are padded to the largest for the exchange.
template <class Dev>
[[nodiscard]] Tensor<Dev> gather_parts(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x,
                                       std::int64_t columns) {
  const auto widest = part_of(columns, group.size(), 0).size();
  Tensor<Dev> mine(dev, x.dtype(), {x.rows(), widest});
  if (x.columns() < widest) dev.fill_zero(mine.mut().bytes(), mine.size_bytes());
  copy_columns(dev, x.view(), 0, mine.mut(), 0, x.columns());
  Tensor<Dev> all(dev, x.dtype(), {group.size(), x.rows(), widest});
  group.all_gather(dev, mine.view(), all.mut()).wait();
  Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, columns));
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto part = part_of(columns, group.size(), rank);
    const auto block = all.view().slice(rank, rank + 1).as({x.rows(), widest});
    copy_columns(dev, block, 0, y.mut(), part.first, part.size());
  }
  return y;
}

}  // namespace dhp
