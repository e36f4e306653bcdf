// Residual: x + body(x), or shortcut(x) + body(x). With a norm first in the body, it is half of a pre-norm transformer
// block. For blocks that end in a norm, ResidualLayerNorm and ResidualBatchNorm need fewer passes.
#pragma once

#include <dhp/nn/sequential.hpp>

namespace dhp {

/// x has any shape. body(x) and shortcut(x) have the same shape; without a shortcut, body(x) has the shape of x.
template <class Dev>
class Residual {
 public:
  /// An empty shortcut is the identity.
  explicit Residual(Sequential<Dev> body, Sequential<Dev> shortcut = {})
      : body_(std::move(body)), shortcut_(std::move(shortcut)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto y = body_.forward(dev, x.share(), tape);
    x.drop_norm();  // no fused norm gradient: dx also has the body's contribution
    return sum_of(dev, std::move(y), shortcut_.forward(dev, std::move(x), tape));
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    auto dx = shortcut_.backward(dev, dy.share(), tape);
    return body_.backward_onto(dev, std::move(dy), std::move(dx), tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return body_.output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return body_.flops(in, batch) + shortcut_.flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const {
    body_.parameters(out);
    shortcut_.parameters(out);
  }

 private:
  Sequential<Dev> body_, shortcut_;
};

}  // namespace dhp
