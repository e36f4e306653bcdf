// Linear: y = x W^T + b over the rows of x. For a part of its outputs or inputs see parallel/tensor.hpp.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/linear.hpp>

namespace dhp {

struct LinearOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  Initializer weight_init{Initializer::Kind::normal, 0.02};
  Initializer bias_init{};
};

enum class Split { none, outputs, inputs };
[[nodiscard]] constexpr int split_dim(Split split, int of_outputs, int of_inputs) {
  return split == Split::none ? -1 : split == Split::outputs ? of_outputs : of_inputs;
}

/// [.., C] seen as [rows, C].
template <class AnyView>
[[nodiscard]] AnyView as_matrix(AnyView view) {
  return view.as({view.rows(), view.columns()});
}

/// x [.., in], y [.., out]; weight "name.weight" [out, in], bias "name.bias" [out].
template <class Dev>
class Linear {
 public:
  Linear(ModelBuilder<Dev>& build, const std::string& name, LinearOptions options,
         Split split_over = Split::none) {
    weight_ = build.parameter(
        {.name = name + ".weight", .shape = {options.out, options.in}, .init = options.weight_init},
        split_dim(split_over, 0, 1));
    if (!options.bias) return;
    bias_ = build.parameter({.name = name + ".bias",
                             .shape = {options.out},
                             .init = options.bias_init,
                             .decays = false},
                            split_dim(split_over, 0, -1));
  }
  /// With the weight of another layer (a tied decoder) and no bias.
  explicit Linear(Parameter<Dev> tied) : weight_(std::move(tied)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, weight_->value.shape()[0]));
    gemm(dev, as_matrix(x.view()), weight_->value, as_matrix(y.mut()), {.transpose_b = true},
         bias_ ? ConstView<Dev>(bias_->value) : ConstView<Dev>());
    tape.push(std::move(x));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    Tensor<Dev> dx(dev, dy.dtype(),
                   dy.shape().with(dy.shape().rank() - 1, weight_->value.shape()[1]));
    backward_into(dev, std::move(dy), dx.mut(), 0, tape);
    return dx;
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    auto dx = writable(dev, std::move(onto));
    backward_into(dev, std::move(dy), dx.mut(), 1, tape);
    return dx;
  }

  // Parts of backward, for layers made of several; each pops what forward pushed.

  /// dx = beta dx + the gradient of x, for several layers with the same x.
  void backward_into(Dev& dev, Tensor<Dev> dy, View<Dev> dx, double beta, Tape<Dev>& tape) {
    backward_into(dev, std::move(dy), dx, beta, bias_, tape);
  }
  /// Something else adds the bias gradient.
  void backward_without_bias(Dev& dev, Tensor<Dev> dy, View<Dev> dx, double beta, Tape<Dev>& tape) {
    backward_into(dev, std::move(dy), dx, beta, nullptr, tape);
  }
  /// Something else computes the gradient of x.
  void backward_weight(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    weight_gradient(dev, tape.pop(), std::move(dy), bias_, tape);
  }

  [[nodiscard]] const Parameter<Dev>& weight() const { return weight_; }
  /// Null without a bias.
  [[nodiscard]] const Parameter<Dev>& bias() const { return bias_; }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return in.with(in.rank() - 1, weight_->spec.local_shape()[0]);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return 2.0 * static_cast<double>(in.rows() * weight_->spec.local_shape().count());
  }
  void parameters(ParameterList<Dev>& out) const {
    out.push_back(weight_);
    if (bias_) out.push_back(bias_);
  }

 private:
  /// bias: null if its gradient is not added here.
  void backward_into(Dev& dev, Tensor<Dev> dy, View<Dev> dx, double beta, Parameter<Dev> bias,
                     Tape<Dev>& tape) {
    gemm(dev, as_matrix(dy.view()), weight_->value, as_matrix(dx), {.beta = beta});
    weight_gradient(dev, tape.pop(), std::move(dy), std::move(bias), tape);
  }
  /// The bias gradient is computed with the weight gradient, and deferred with it: a device may fuse them.
  void weight_gradient(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, Parameter<Dev> bias,
                       Tape<Dev>& tape) {
    tape.weight_gradient(dev, [weight = weight_, bias = std::move(bias), x = std::move(x),
                               dy = std::move(dy)](Dev& device) {
      const auto out = as_matrix(dy.view()), in = as_matrix(x.view());
      weight->accumulate(device, [&](View<Dev> dw, double beta) {
        if (!bias) return gemm(device, out, in, dw, {.transpose_a = true, .beta = beta});
        bias->accumulate(device, [&](View<Dev> dbias, double) {  // the same beta for both
          linear_gradients(device, out, in, dw, dbias, beta);
        });
      });
    });
  }

  Parameter<Dev> weight_;
  Parameter<Dev> bias_;
};

}  // namespace dhp
