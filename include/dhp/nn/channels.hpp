// For convolutional networks: GatherChannels gathers channels that are split over the tensor axis, ScatterChannels
// splits replicated channels. Each is the other's backward pass. A rank's channels are part_of(channels, size, rank).
#pragma once

#include <dhp/nn/gather_parts.hpp>
#include <dhp/nn/layer.hpp>

namespace dhp {

/// Gathers the split channels of a layer placed by columns, so that each rank has all of them. The incoming gradient is
/// complete on each rank, because the next layers have summed it already.
template <class Dev>
class GatherChannels {
 public:
  /// of: the placement of the adjacent layer; for a replicated layer, y is x.
  GatherChannels(ModelBuilder<Dev>& build, std::int64_t channels, Placement of)
      : group_(of == Placement::replicated ? Comm<Dev>() : build.tensor),
        pieces_(build.sum_of_pieces(of).pieces()),
        channels_(channels),
        part_(detail::tensor_part("channels", channels, group_.size() * pieces_,
                                  group_.rank() * pieces_)) {}
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    if (group_.size() * pieces_ == 1) return x;
    return gather_parts(dev, group_, x, channels_, pieces_);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>&) {
    if (group_.size() * pieces_ == 1) return dy;
    return detail::take_part(dev, group_, dy, pieces_);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    const auto piece = detail::shape_of_piece(pieces_, in);
    return piece.with(piece.rank() - 1, channels_);
  }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Dev>&) const { return 0; }
  void parameters(ParameterList<Dev>&) const {}

 protected:
  Comm<Dev> group_;
  int pieces_;  ///< number of pieces on this rank
  std::int64_t channels_;
  Range part_;  ///< channels of this rank's first piece
};

/// Splits replicated channels for a following layer placed by rows: the inverse of GatherChannels.
template <class Dev>
class ScatterChannels : public GatherChannels<Dev> {
  using Gather = GatherChannels<Dev>;

 public:
  using Gather::Gather;
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    return Gather::backward(dev, std::move(x), tape);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return Gather::forward(dev, std::move(dy), tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return detail::shape_of_pieces(this->pieces_, in.with(in.rank() - 1, this->part_.size()));
  }
};

}  // namespace dhp
