// Gathers a matrix whose columns are split over a group, so that each rank has all columns; take_part splits it again.
#pragma once

#include <dhp/nn/group_sum.hpp>
#include <dhp/ops/rows.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>

namespace dhp {

/// x is [.., part_of(columns, size, rank)], y is [.., columns]. For the exchange, uneven parts are padded to the
/// largest. With several pieces on each rank, x is [pieces, .., columns of the widest piece or more].
template <class Dev>
[[nodiscard]] Tensor<Dev> gather_parts(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x,
                                       std::int64_t columns, int pieces = 1) {
  const int parts = group.size() * pieces;
  const auto widest = part_of(columns, parts, 0).size();
  const Shape block{x.rows() / pieces, widest};
  auto mine = x.view();
  Tensor<Dev> widened;
  if (x.columns() != widest) {
    widened = Tensor<Dev>(dev, x.dtype(), {pieces, block[0], widest});
    const auto copied = std::min(x.columns(), widest);
    if (copied < widest) dev.fill_zero(widened.mut().bytes(), widened.size_bytes());
    for (int at = 0; at < pieces; ++at)
      copy_columns(dev, detail::piece(x.view(), pieces, at), 0,
                   widened.mut().slice(at, at + 1).as(block), 0, copied);
    mine = widened.view();
  }
  Tensor<Dev> gathered;
  if (group.size() > 1) {
    gathered = Tensor<Dev>(dev, x.dtype(), {parts * mine.count() / pieces});
    group.all_gather(dev, mine, gathered.mut()).wait();
    mine = gathered.view();
  }
  const auto all = mine.as({parts, block[0], widest});
  const auto shape = detail::shape_of_piece(pieces, x.shape());
  Tensor<Dev> y(dev, x.dtype(), shape.with(shape.rank() - 1, columns));
  for (int at = 0; at < parts; ++at) {
    const auto part = part_of(columns, parts, at);
    copy_columns(dev, all.slice(at, at + 1).as(block), 0, y.mut(), part.first, part.size());
  }
  return y;
}

namespace detail {
/// The inverse of gather_parts, without communication: takes this rank's columns of a complete x, as `pieces` pieces.
template <class Dev>
[[nodiscard]] Tensor<Dev> take_part(Dev& dev, const Comm<Dev>& group, const Tensor<Dev>& x,
                                    int pieces) {
  const auto part_at = [&](int at) {
    return part_of(x.columns(), group.size() * pieces, group.rank() * pieces + at);
  };
  const auto shape = x.shape().with(x.shape().rank() - 1, part_at(0).size());
  Tensor<Dev> y(dev, x.dtype(), shape_of_pieces(pieces, shape));
  for (int at = 0; at < pieces; ++at)
    copy_columns(dev, x.view(), part_at(at).first, piece(y.mut(), pieces, at), 0,
                 part_at(at).size());
  return y;
}
}  // namespace detail

}  // namespace dhp
