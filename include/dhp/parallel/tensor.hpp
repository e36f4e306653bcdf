// H, the horizontal axis: layers whose weights are split over the tensor group (Shoeybi et al. 2019, "Megatron-LM",
// section 3). *Column-parallel* layers split their outputs: backward sums the input gradient over the group.
// *Row-parallel* layers split their inputs: forward sums the output. A pair of them exchanges nothing in between.
#pragma once

#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/linear.hpp>

namespace dhp {

/// x is whole on every rank; y holds this rank's outputs: columns of a linear layer, channels of a convolution.
template <class Dev, Layer<Dev> Inner>
class ColumnParallel : public Inner {
 public:
  ColumnParallel(ModelBuilder<Dev>& build, Inner inner)
      : Inner(std::move(inner)), group_(build.tensor) {}

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    auto dx = Inner::backward(dev, std::move(dy), tape);
    // The first layer of a model may have no input gradient.
    if (dx && group_.size() > 1) group_.all_reduce(dev, dx.mut()).wait();
    return dx;
  }
  /// One rank adds its part onto the other gradient, so that the group's sum includes it once.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    if (group_.rank() != 0) {
      onto = {};
      return backward(dev, std::move(dy), tape);
    }
    auto dx = dhp::backward_onto<Dev, Inner>(dev, *this, std::move(dy), std::move(onto), tape);
    if (group_.size() > 1) group_.all_reduce(dev, dx.mut()).wait();
    return dx;
  }

 private:
  Comm<Dev> group_;
};

/// x holds this rank's inputs; y is whole on every rank. A split embedding uses it too: the ranks' lookups are
/// summed.
template <class Dev, Layer<Dev> Inner>
class RowParallel : public Inner {
 public:
  RowParallel(ModelBuilder<Dev>& build, Inner inner)
      : Inner(std::move(inner)), group_(build.tensor) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto y = Inner::forward(dev, std::move(x), tape);
    if (group_.size() > 1) group_.all_reduce(dev, y.mut()).wait();
    return y;
  }

 private:
  Comm<Dev> group_;
};

template <class Dev>
[[nodiscard]] auto column_parallel_linear(ModelBuilder<Dev>& build, const std::string& name,
                                          LinearOptions options) {
  return ColumnParallel<Dev, Linear<Dev>>(build, Linear<Dev>(build, name, options, Split::outputs));
}

template <class Dev>
class RowParallelLinear : public RowParallel<Dev, Linear<Dev>> {
 public:
  RowParallelLinear(ModelBuilder<Dev>& build, const std::string& name, LinearOptions options)
      : RowParallel<Dev, Linear<Dev>>(build, Linear<Dev>(build, name, options, Split::inputs)) {}
};

/// A feed-forward pair: backward sums as in column-parallel layers, forward as in row-parallel ones.
template <class Dev>
[[nodiscard]] auto parallel_feed_forward(ModelBuilder<Dev>& build, const std::string& first,
                                         const std::string& second, FeedForwardOptions options) {
  using Pair = ColumnParallel<Dev, FeedForward<Dev>>;
  return RowParallel<Dev, Pair>(build,
                                Pair(build, FeedForward<Dev>(build, first, second, options)));
}

/// An embedding whose table entries are split over the group.
template <class Dev>
[[nodiscard]] auto vocabulary_parallel_embedding(ModelBuilder<Dev>& build, const std::string& name,
                                                 EmbeddingOptions options) {
  options.split = true;
  return RowParallel<Dev, Embedding<Dev>>(build, Embedding<Dev>(build, name, options));
}

template <class Dev>
[[nodiscard]] auto column_parallel_conv2d(ModelBuilder<Dev>& build, const std::string& name,
                                          Conv2dOptions options) {
  return ColumnParallel<Dev, Conv2d<Dev>>(build, Conv2d<Dev>(build, name, options, Split::outputs));
}
template <class Dev>
[[nodiscard]] auto row_parallel_conv2d(ModelBuilder<Dev>& build, const std::string& name,
                                       Conv2dOptions options) {
  return RowParallel<Dev, Conv2d<Dev>>(build, Conv2d<Dev>(build, name, options, Split::inputs));
}

}  // namespace dhp
