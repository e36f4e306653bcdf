// For convolutional networks: gathers channels that are split over the tensor axis, or splits whole ones.
// Each is the other's backward pass. A rank's part is part_of(channels, size, rank).
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/rows.hpp>

namespace dhp {

/// This rank's columns of x, which is whole on every rank. Nothing is exchanged.
template <class Dev>
[[nodiscard]] Tensor<Dev> take_part(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x) {
  const auto part = part_of(x.columns(), group.size(), group.rank());
  Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, part.size()));
  copy_columns(dev, x.view(), part.first, y.mut(), 0, part.size());
  return y;
}

/// The columns of all ranks side by side. Parts may be uneven: they are sent padded to the largest.
template <class Dev>
[[nodiscard]] Tensor<Dev> gather_parts(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x,
                                       std::int64_t channels) {
  const auto widest = part_of(channels, group.size(), 0).size();
  Tensor<Dev> mine(dev, x.dtype(), {x.rows(), widest});
  if (x.columns() < widest) dev.fill_zero(mine.mut().bytes(), mine.size_bytes());
  copy_columns(dev, x.view(), 0, mine.mut(), 0, x.columns());
  Tensor<Dev> all(dev, x.dtype(), {group.size(), x.rows(), widest});
  group.all_gather(dev, mine.view(), all.mut()).wait();
  Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, channels));
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto part = part_of(channels, group.size(), rank);
    const auto block = all.view().slice(rank, rank + 1).as({x.rows(), widest});
    copy_columns(dev, block, 0, y.mut(), part.first, part.size());
  }
  return y;
}

/// split -> whole. The gradient arrives complete: column-parallel layers have summed it.
template <class Dev>
class GatherChannels {
 public:
  GatherChannels(ModelBuilder<Dev>& build, std::int64_t channels)
      : group_(build.tensor),
        channels_(channels),
        part_(tensor_part("channels", channels, group_.size(), group_.rank())) {}
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    if (group_.size() == 1) return x;
    return gather_parts(dev, group_, x, channels_);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>&) {
    if (group_.size() == 1) return dy;
    return take_part(dev, group_, dy);
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

/// whole -> split: GatherChannels the other way round.
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
