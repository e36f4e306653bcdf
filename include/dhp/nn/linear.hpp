// Linear: y = x W^T + b over the rows of x. A part of its outputs or inputs can live on this rank; the
// exchange that this needs is not its business (parallel/tensor.hpp).
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/gemm.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

struct LinearOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  Initializer weight_init{Initializer::Kind::normal, 0.02};
  Initializer bias_init{};
};

enum class Split { none, outputs, inputs };

/// x [.., in], y [.., out]; weight "name.weight" [out, in], bias "name.bias" [out].
template <class Dev>
class Linear {
 public:
  Linear(Build<Dev>& build, const std::string& name, LinearOptions options,
         Split split_over = Split::none) {
    ParameterSpec weight{
        .name = name + ".weight", .shape = {options.out, options.in}, .init = options.weight_init};
    ParameterSpec bias{
        .name = name + ".bias", .shape = {options.out}, .init = options.bias_init, .decays = false};
    const int parts = build.tensor.size();
    const int index = build.tensor.rank();
    if (split_over == Split::outputs) {
      weight = split(weight, 0, parts, index);
      bias = split(bias, 0, parts, index);
    } else if (split_over == Split::inputs) {
      weight = split(weight, 1, parts, index);
    }
    weight_ = build.parameter(weight);
    if (options.bias) bias_ = build.parameter(bias);
  }
  /// A linear layer that uses a weight of another layer (a tied decoder) and no bias.
  explicit Linear(Parameter<Dev> tied) : weight_(std::move(tied)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), x.shape().with(x.shape().rank() - 1, weight_->value.shape()[0]));
    gemm(dev, rows_of(x.view()), weight_->value, rows_of(y.mut()), {.transpose_b = true},
         bias_ ? ConstView<Dev>(bias_->value) : ConstView<Dev>());
    tape.push(std::move(x));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    Tensor<Dev> x = tape.pop();
    Tensor<Dev> dx(dev, x.dtype(), x.shape());
    gemm(dev, rows_of(dy.view()), weight_->value, rows_of(dx.mut()));
    if (bias_)
      bias_->accumulate(dev, [&](View<Dev> gradient, double beta) {
        column_sums(dev, dy.view(), gradient, beta);
      });
    tape.weight_gradient(dev,
                         [weight = weight_, x = std::move(x), dy = std::move(dy)](Dev& device) {
                           weight->accumulate(device, [&](View<Dev> gradient, double beta) {
                             gemm(device, rows_of(dy.view()), rows_of(x.view()), gradient,
                                  {.transpose_a = true, .beta = beta});
                           });
                         });
    return dx;
  }

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
  // [.., C] seen as [rows, C].
  template <class AnyView>
  static AnyView rows_of(AnyView view) {
    return view.as({view.rows(), view.columns()});
  }

  Parameter<Dev> weight_;
  Parameter<Dev> bias_;
};

}  // namespace dhp
