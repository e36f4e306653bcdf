// Pooling of images [N, H, W, C]: the maximum over windows, and the average over a whole image.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/pool.hpp>

namespace dhp {

/// Maps x [N, H, W, C] to y [N, H', W', C]. Padding is never the maximum.
template <class Dev>
class MaxPool : public ElementwiseLayer<Dev> {
 public:
  explicit MaxPool(PoolGeometry geometry) : geometry_(geometry) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto shape = pool_output_shape(x.shape(), geometry_);
    Tensor<Dev> y(dev, x.dtype(), shape);
    Tensor<Dev> index(dev, DType::i32, shape);
    max_pool_forward(dev, x.view(), geometry_, y.mut(), index.mut());
    tape.push(std::move(index));
    tape.push_shape(x.shape());
    return y;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    const Tensor<Dev> index = tape.pop();
    Tensor<Dev> dx(dev, dy.dtype(), tape.pop_shape());
    max_pool_backward(dev, dy.view(), index.view(), geometry_, dx.mut());
    return dx;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return pool_output_shape(in, geometry_);
  }

 private:
  PoolGeometry geometry_;
};

/// Averages each image: maps x [N, H, W, C] to y [N, C].
template <class Dev>
class GlobalAveragePool : public ElementwiseLayer<Dev> {
 public:
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), {x.shape()[0], x.columns()});
    global_average_pool_forward(dev, x.view(), y.mut());
    tape.push_shape(x.shape());
    return y;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    Tensor<Dev> dx(dev, dy.dtype(), tape.pop_shape());
    global_average_pool_backward(dev, dy.view(), dx.mut());
    return dx;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return {in[0], in.back()};
  }
};

}  // namespace dhp
