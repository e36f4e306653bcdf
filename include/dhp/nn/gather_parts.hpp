// Gathers a matrix whose columns are split over a group, so that each rank has all of it.
#pragma once

#include <dhp/nn/group_sum.hpp>
#include <dhp/ops/rows.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp {

namespace detail {
/// Pieces [pieces, .., c] as one tensor [.., pieces * c].
template <class Dev>
[[nodiscard]] Tensor<Dev> join_pieces(Dev& dev, ConstView<Dev> x, int pieces) {
  const auto shape = shape_of_piece(pieces, x.shape());
  const auto columns = shape.back();
  Tensor<Dev> y(dev, x.dtype(), shape.with(shape.rank() - 1, pieces * columns));
  for (int at = 0; at < pieces; ++at)
    copy_columns(dev, piece(x, pieces, at), 0, y.mut(), at * columns, columns);
  return y;
}
/// The inverse.
template <class Dev>
[[nodiscard]] Tensor<Dev> split_pieces(Dev& dev, ConstView<Dev> x, int pieces) {
  const auto columns = x.columns() / pieces;
  Tensor<Dev> y(dev, x.dtype(),
                shape_of_pieces(pieces, x.shape().with(x.shape().rank() - 1, columns)));
  for (int at = 0; at < pieces; ++at)
    copy_columns(dev, x, at * columns, piece(y.mut(), pieces, at), 0, columns);
  return y;
}
}  // namespace detail

/// x [.., part_of(columns, size, rank)], y [.., columns]. Uneven parts are padded to the largest for the exchange.
/// pieces: that each rank holds, [pieces, .., at least the columns of the widest].
template <class Dev>
[[nodiscard]] Tensor<Dev> gather_parts(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x,
                                       std::int64_t columns, int pieces = 1) {
  const int parts = group.size() * pieces;
  const auto widest = part_of(columns, parts, 0).size();
  const Shape block{x.rows() / pieces, widest};
  const auto copied = std::min(x.columns(), widest);
  Tensor<Dev> mine(dev, x.dtype(), {pieces, block[0], widest});
  if (copied < widest) dev.fill_zero(mine.mut().bytes(), mine.size_bytes());
  for (int at = 0; at < pieces; ++at)
    copy_columns(dev, detail::piece(x.view(), pieces, at), 0,
                 mine.mut().slice(at, at + 1).as(block), 0, copied);
  Tensor<Dev> all;
  if (group.size() > 1) {
    all = Tensor<Dev>(dev, x.dtype(), {parts, block[0], widest});
    group.all_gather(dev, mine.view(), all.mut()).wait();
  } else {
    all = std::move(mine);
  }
  const auto shape = detail::shape_of_piece(pieces, x.shape());
  Tensor<Dev> y(dev, x.dtype(), shape.with(shape.rank() - 1, columns));
  for (int at = 0; at < parts; ++at) {
    const auto part = part_of(columns, parts, at);
    copy_columns(dev, all.view().slice(at, at + 1).as(block), 0, y.mut(), part.first, part.size());
  }
  return y;
}

}  // namespace dhp
