// For convolutional networks: gathers channels that are split over the tensor axis, or splits replicated ones. Each
// is the other's backward pass. A rank's part is part_of(channels, size, rank).
#pragma once

#include <dhp/nn/gather_parts.hpp>
#include <dhp/nn/layer.hpp>

namespace dhp {

namespace detail {
/// This rank's columns of x, which every rank holds in full. Needs no exchange.
template <class Dev>
[[nodiscard]] Tensor<Dev> take_part(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x) {
  const auto part = part_of(x.columns(), group.size(), group.rank());
  Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, part.size()));
  copy_columns(dev, x.view(), part.first, y.mut(), 0, part.size());
  return y;
}
}  // namespace detail

/// Split to whole, where the layer before is placed by columns. The incoming gradient is complete: layers behind have
/// summed it.
template <class Dev>
class GatherChannels {
 public:
  /// of: the placement of the layer beside; replicated: x is y.
  GatherChannels(ModelBuilder<Dev>& build, std::int64_t channels, Placement of)
      : group_(of == Placement::replicated ? Comm<Dev>() : build.tensor),
        channels_(channels),
        part_(detail::tensor_part("channels", channels, group_.size(), group_.rank())) {}
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    if (group_.size() == 1) return x;
    return gather_parts(dev, group_, x, channels_);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>&) {
    if (group_.size() == 1) return dy;
    return detail::take_part(dev, group_, dy);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return in.with(in.rank() - 1, channels_);
  }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Dev>&) const { return 0; }
  void parameters(ParameterList<Dev>&) const {}

 protected:
  Comm<Dev> group_;
  std::int64_t channels_;
  Range part_;  ///< this rank's channels
};

/// Whole to split, where the layer behind is placed by rows: the inverse of GatherChannels.
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
    return in.with(in.rank() - 1, this->part_.size());
  }
};

}  // namespace dhp
