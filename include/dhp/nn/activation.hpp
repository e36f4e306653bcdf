// ReLU, GELU (exact) and tanh as layers.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp {

template <class Dev>
class ActivationLayer : public ElementwiseLayer<Dev> {
 public:
  explicit ActivationLayer(Activation kind) : kind_(kind) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (saves_output(kind_)) {
      // Works in place where nobody else holds x.
      Tensor<Dev> y = x.unique() ? std::move(x) : Tensor<Dev>(dev, x.dtype(), x.shape());
      activation_forward(dev, kind_, x.empty() ? y.view() : x.view(), y.mut());
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
    if (dy.unique()) {
      activation_backward(dev, kind_, saved.view(), dy.view(), dy.mut());
      return dy;
    }
    Tensor<Dev> dx(dev, dy.dtype(), dy.shape());
    activation_backward(dev, kind_, saved.view(), dy.view(), dx.mut());
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
