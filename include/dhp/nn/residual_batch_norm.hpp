// ResidualBatchNorm: ReLU(norm(body(x)) + shortcut(x)), the end of a residual block, in fewer passes over memory.
#pragma once

#include <dhp/nn/batch_norm.hpp>
#include <dhp/nn/sequential.hpp>

namespace dhp {

/// x is [N, H, W, C]; body and shortcut must return equal shapes.
template <class Dev>
class ResidualBatchNorm {
 public:
  /// name: the norm's name in messages. An empty shortcut is the identity.
  ResidualBatchNorm(Sequential<Dev> body, std::string name, BatchNorm<Dev> norm,
                    Sequential<Dev> shortcut = {})
      : body_(std::move(body)),
        name_(std::move(name)),
        norm_(std::move(norm)),
        shortcut_(std::move(shortcut)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto inner = body_.forward(dev, x.share(), tape);
    x.drop_norm();  // not fused: the ReLU before x masks the sum of both gradients
    auto residual = shortcut_.forward(dev, std::move(x), tape);
    return detail::in_layer(dev, name_, "output", tape, [&] {
      return norm_.forward(dev, std::move(inner), std::move(residual), tape);
    });
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    Tensor<Dev> dresidual;
    auto dinner = detail::in_layer(dev, name_, "input gradient", tape, [&] {
      auto result = norm_.backward_with_residual(dev, std::move(dy), tape);
      dresidual = std::move(result.dresidual);
      return std::move(result.dx);
    });
    auto dx = shortcut_.backward(dev, std::move(dresidual), tape);
    return body_.backward_onto(dev, std::move(dinner), std::move(dx), tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return norm_.output_shape(body_.output_shape(in, batch), batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return body_.flops(in, batch) + norm_.flops(body_.output_shape(in, batch), batch) +
           shortcut_.flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const {
    body_.parameters(out);
    norm_.parameters(out);
    shortcut_.parameters(out);
  }

 private:
  Sequential<Dev> body_;
  std::string name_;
  BatchNorm<Dev> norm_;
  Sequential<Dev> shortcut_;
};

}  // namespace dhp
