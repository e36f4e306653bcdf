// The activation functions as layers: ReLU, tanh, and GELU in its exact or its tanh form.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp {

/// Applies an activation function to each element of x; y has the shape of x.
template <class Dev>
class ActivationLayer : public ElementwiseLayer<Dev> {
 public:
  explicit ActivationLayer(Activation kind) : kind_(kind) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (detail::saves_output(kind_)) {
      const auto in = x.view();
      auto y = reuse(dev, x);
      activation_forward(dev, kind_, in, y.mut());
      tape.push(y.share());
      return y;
    }
    Tensor<Dev> y(dev, x.dtype(), x.shape());
    activation_forward(dev, kind_, x.view(), y.mut());
    tape.push(std::move(x));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    const Tensor<Dev> saved = tape.pop();
    const auto in = dy.view();
    auto dx = reuse(dev, dy);
    activation_backward(dev, kind_, saved.view(), in, dx.mut());
    return dx;
  }

 private:
  Activation kind_;
};

template <class Dev>
[[nodiscard]] ActivationLayer<Dev> relu() {
  return ActivationLayer<Dev>(Activation::relu);
}
template <class Dev>
[[nodiscard]] ActivationLayer<Dev> gelu() {
  return ActivationLayer<Dev>(Activation::gelu);
}

}  // namespace dhp
