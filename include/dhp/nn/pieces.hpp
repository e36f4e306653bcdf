// Piece: a named part of a tensor. Each owner of state (weights, master weights, momenta, running statistics) describes
// its state by pieces, so checkpoints, snapshots and transfers work in every layout.
#pragma once

#include <dhp/core/shape.hpp>
#include <dhp/core/types.hpp>
#include <dhp/tensor/view.hpp>

#include <algorithm>
#include <string>

namespace dhp {

/// Order of the axes in weight files, if it differs from the order in memory.
enum class FileOrder { same, out_kernel_in_as_out_in_kernel };

/// A flat range of a box. The box is the whole tensor, or a range of one of its dimensions (a tensor rank's part). The
/// range counts the box's elements in row-major order; ZeRO cuts parameters in this order.
struct Piece {
  std::string name;          ///< global, unique name
  Shape shape{};             ///< shape of the whole tensor
  DType dtype = DType::f32;  ///< type of the elements in memory
  int split_dim = -1;        ///< the dimension that the box cuts; -1: the box is the whole tensor
  Range part{};              ///< the box's range of split_dim
  Range range{};             ///< the piece's range of the box's elements
  FileOrder file_order = FileOrder::same;

  [[nodiscard]] Shape box() const {
    return split_dim < 0 ? shape : shape.with(split_dim, part.size());
  }
  [[nodiscard]] std::int64_t count() const { return range.size(); }
  [[nodiscard]] std::size_t bytes() const { return detail::as_size(count()) * size_of(dtype); }
  [[nodiscard]] Piece slice(std::int64_t first, std::int64_t last) const {
    Piece cut = *this;
    cut.range = {range.first + first, range.first + last};
    return cut;
  }
  /// Serializes a piece through detail::Fields.
  void pass(auto& fields) { fields(name, shape, dtype, split_dim, part, range, file_order); }
  friend bool operator==(const Piece&, const Piece&) = default;
};

namespace detail {
/// How the elements of a part of one dimension lie in the whole tensor; both are row-major.
struct CutDim {
  /// dim: the dimension of which `part` is a range; -1: the part is the whole tensor.
  CutDim(const Shape& shape, int dim, Range part) {
    std::int64_t inner = 1;
    for (int at = dim + 1; at < shape.rank(); ++at) inner *= shape[at];
    run = std::max<std::int64_t>(dim < 0 ? inner : part.size() * inner, 1);
    stride = dim < 0 ? run : shape[dim] * inner;
    offset = dim < 0 ? 0 : part.first * inner;
  }
  [[nodiscard]] std::int64_t in_whole(std::int64_t element) const {
    return element / run * stride + offset + element % run;
  }
  std::int64_t run;     ///< elements that are contiguous in both
  std::int64_t stride;  ///< distance of two runs in the whole tensor
  std::int64_t offset;  ///< of the first run
};

/// A run of elements of a piece that are contiguous in the whole tensor.
struct Extent {
  std::int64_t whole = 0;  ///< row-major index of the first element in the whole tensor
  std::int64_t held = 0;   ///< index of the first element in the piece
  std::int64_t count = 0;
};

/// Iterates over the extents of a piece in ascending order.
class Extents {
 public:
  explicit Extents(const Piece& piece)
      : first_(piece.range.first),
        last_(piece.range.last),
        at_(first_),
        box_(piece.shape, piece.split_dim, piece.part) {}

  [[nodiscard]] bool done() const { return at_ >= last_; }
  [[nodiscard]] Extent now() const {
    return {box_.in_whole(at_), at_ - first_, std::min(box_.run - at_ % box_.run, last_ - at_)};
  }
  void next() { at_ += now().count; }

 private:
  std::int64_t first_, last_, at_;  // element numbers in the box
  CutDim box_;
};

/// Calls move(index in a, index in b, count) for each run of common elements of two pieces, in ascending order.
void for_common_extents(const Piece& a, const Piece& b, auto move) {
  Extents left(a);
  Extents right(b);
  while (!left.done() && !right.done()) {
    const auto l = left.now();
    const auto r = right.now();
    const auto first = std::max(l.whole, r.whole);
    const auto last = std::min(l.whole + l.count, r.whole + r.count);
    if (first < last) move(l.held + first - l.whole, r.held + first - r.whole, last - first);
    if (l.whole + l.count <= r.whole + r.count) left.next();
    else right.next();
  }
}
}  // namespace detail

/// A piece and the memory that holds it.
template <class Dev>
struct HeldPiece {
  Piece piece;
  View<Dev> data;                  ///< [piece.count()]
  bool owned = true;               ///< false: a copy of a tied weight that another stage owns
  bool sharded_over_data = false;  ///< replicas shard these elements (ZeRO)
  bool copy = false;               ///< a redundant copy of another replica's share
};

}  // namespace dhp
