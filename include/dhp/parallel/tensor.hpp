// H, the horizontal axis: layers whose weights are split over the tensor group (Shoeybi et al. 2019,
// "Megatron-LM", section 3). They come in pairs. *Column-parallel*: outputs are split; forward exchanges
// nothing, backward sums the input gradient. *Row-parallel*: inputs are split; forward sums the output,
// backward exchanges nothing. In a group of one each is the plain layer.
#pragma once

#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/rows.hpp>

namespace dhp {

/// x is whole on every rank, y holds this rank's outputs: columns of a linear, channels of a convolution.
template <class Dev, Layer<Dev> Inner>
class ColumnParallel {
 public:
  ColumnParallel(ModelBuilder<Dev>& build, Inner inner)
      : group_(build.tensor), inner_(std::move(inner)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    return inner_.forward(dev, std::move(x), tape);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    auto dx = inner_.backward(dev, std::move(dy), tape);
    // The first layer of a model may have no input gradient.
    if (dx && group_.size() > 1) group_.all_reduce(dev, dx.mut()).wait();
    return dx;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return inner_.output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return inner_.flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { inner_.parameters(out); }

 private:
  Comm<Dev> group_;
  Inner inner_;
};

/// x holds this rank's inputs, y is whole on every rank. Also a split embedding: its ranks' shares are
/// summed.
template <class Dev, Layer<Dev> Inner>
class RowParallel {
 public:
  RowParallel(ModelBuilder<Dev>& build, Inner inner)
      : group_(build.tensor), inner_(std::move(inner)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto y = inner_.forward(dev, std::move(x), tape);
    if (group_.size() > 1) group_.all_reduce(dev, y.mut()).wait();
    return y;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return inner_.backward(dev, std::move(dy), tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return inner_.output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return inner_.flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { inner_.parameters(out); }

 private:
  Comm<Dev> group_;
  Inner inner_;
};

/// A bias by itself: what a row-parallel linear adds once, after its sum; or, split, on split columns.
template <class Dev>
class Bias : public ElementwiseLayer<Dev> {
 public:
  Bias(ModelBuilder<Dev>& build, const std::string& name, std::int64_t columns,
       bool is_split = false) {
    ParameterSpec spec{.name = name + ".bias", .shape = {columns}, .decays = false};
    if (is_split) spec = split(spec, 0, build.tensor.size(), build.tensor.rank());
    bias_ = build.parameter(spec);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    Tensor<Dev> y = x.unique() ? std::move(x) : clone(dev, x.view());
    add_to_rows(dev, bias_->value, y.mut());
    return y;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>&) {
    bias_->accumulate(
        dev, [&](View<Dev> gradient, double beta) { column_sums(dev, dy.view(), gradient, beta); });
    return dy;
  }
  void parameters(ParameterList<Dev>& out) const { out.push_back(bias_); }

 private:
  Parameter<Dev> bias_;
};

template <class Dev>
[[nodiscard]] auto column_parallel_linear(ModelBuilder<Dev>& build, const std::string& name,
                                          LinearOptions options) {
  return ColumnParallel<Dev, Linear<Dev>>(build, Linear<Dev>(build, name, options, Split::outputs));
}

/// A layer over split inputs, sum over the group, bias "name.bias" once.
template <class Dev, Layer<Dev> Inner>
class BiasedRowParallel {
 public:
  BiasedRowParallel(ModelBuilder<Dev>& build, Inner inner, const std::string& name,
                    std::int64_t columns)
      : sum_(build, std::move(inner)), bias_(build, name, columns) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    return bias_.forward(dev, sum_.forward(dev, std::move(x), tape), tape);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return sum_.backward(dev, bias_.backward(dev, std::move(dy), tape), tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return sum_.output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return sum_.flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const {
    sum_.parameters(out);
    bias_.parameters(out);
  }

 private:
  RowParallel<Dev, Inner> sum_;
  Bias<Dev> bias_;
};

template <class Dev>
class RowParallelLinear : public BiasedRowParallel<Dev, Linear<Dev>> {
 public:
  RowParallelLinear(ModelBuilder<Dev>& build, const std::string& name, LinearOptions options)
      : BiasedRowParallel<Dev, Linear<Dev>>(
            build, Linear<Dev>(build, name, without_bias(options), Split::inputs), name,
            options.out) {}

 private:
  static LinearOptions without_bias(LinearOptions options) {
    options.bias = false;
    return options;
  }
};

/// A feed-forward pair with both biases: column-parallel on the way back, row-parallel on the way forward.
template <class Dev>
[[nodiscard]] auto parallel_feed_forward(ModelBuilder<Dev>& build, const std::string& first,
                                         const std::string& second, FeedForwardOptions options) {
  using Pair = ColumnParallel<Dev, FeedForward<Dev>>;
  Pair pair(build, FeedForward<Dev>(build, first, second, options));
  return BiasedRowParallel<Dev, Pair>(build, std::move(pair), second, options.columns);
}

/// A table whose entries are split over the group.
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
