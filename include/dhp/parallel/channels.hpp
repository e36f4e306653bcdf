// Between split and whole channels of the tensor axis, for convolutional networks: each is the other's
// backward. channels: of the whole activation; a rank's part is part_of(channels, size, rank).
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/rows.hpp>

namespace dhp {

/// This rank's columns of every rank's whole x: no exchange.
template <class Dev>
[[nodiscard]] Tensor<Dev> take_part(Dev& dev, Comm<Dev>& group, const Tensor<Dev>& x) {
  const auto part = part_of(x.columns(), group.size(), group.rank());
  Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, part.size()));
  copy_columns(dev, x.view(), part.first, y.mut(), 0, part.size());
  return y;
}

/// Every rank's columns side by side. Parts may be uneven, so they travel padded to the largest.
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

/// split -> whole. Its gradient arrives whole and complete: column-parallel layers have summed it.
template <class Dev>
class GatherChannels {
 public:
  GatherChannels(ModelBuilder<Dev>& build, std::int64_t channels)
      : group_(build.tensor), channels_(channels) {
    (void)tensor_part("channels", channels, group_.size(), group_.rank());
  }
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

 private:
  Comm<Dev> group_;
  std::int64_t channels_;
};

/// whole -> split.
template <class Dev>
class ScatterChannels {
 public:
  ScatterChannels(ModelBuilder<Dev>& build, std::int64_t channels)
      : group_(build.tensor), channels_(channels) {
    (void)tensor_part("channels", channels, group_.size(), group_.rank());
  }
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    if (group_.size() == 1) return x;
    return take_part(dev, group_, x);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>&) {
    if (group_.size() == 1) return dy;
    return gather_parts(dev, group_, dy, channels_);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return in.with(in.rank() - 1, part_of(channels_, group_.size(), group_.rank()).size());
  }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Dev>&) const { return 0; }
  void parameters(ParameterList<Dev>&) const {}

 private:
  Comm<Dev> group_;
  std::int64_t channels_;
};

}  // namespace dhp
