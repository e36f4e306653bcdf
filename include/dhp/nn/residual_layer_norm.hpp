// ResidualLayerNorm: y = norm(x + dropout(body(x))), half of a post-norm transformer block. One pass over memory
// computes dropout, sum and norm, with the parameters and masks of separate layers.
#pragma once

#include <dhp/nn/dropout.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/sequential.hpp>

namespace dhp {

struct ResidualLayerNormOptions {
  std::int64_t columns = 0;
  double dropout = 0;  ///< dropout probability
  double epsilon = 1e-12;
};

/// body maps [.., C] to [.., C]; the norm's weights are "name.weight" and "name.bias", both [C].
template <class Dev>
class ResidualLayerNorm {
 public:
  ResidualLayerNorm(ModelBuilder<Dev>& build, const std::string& name, Sequential<Dev> body,
                    ResidualLayerNormOptions options)
      : body_(std::move(body)),
        dropout_(build, options.dropout, build.row_shares()),
        weights_(build, name, options.columns),
        epsilon_(options.epsilon) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto branch = body_.forward(dev, x.share(), tape);
    Tensor<Dev> y(dev, x.dtype(), x.shape());
    Tensor<Dev> mean(dev, accumulation_type(x.dtype()), {x.rows()});
    Tensor<Dev> inv_std(dev, accumulation_type(x.dtype()), {x.rows()});
    const auto normalize = [&, from = branch.view()](View<Dev> sum) {
      detail::residual_layer_norm_forward(
          dev, from, x.view(), dropout_.rows(tape, x.rows()), dropout_.options(tape, x.columns()),
          weights_.gamma(), weights_.beta(), epsilon_, sum, y.mut(), mean.mut(), inv_std.mut());
    };
    if (!tape.keeps()) {
      normalize(y.mut());
      return y;
    }
    auto sum = reuse(dev, branch);
    normalize(sum.mut());
    tape.push(std::move(sum));
    tape.push(std::move(mean));
    tape.push(std::move(inv_std));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    const Tensor<Dev> inv_std = tape.pop();
    const Tensor<Dev> mean = tape.pop();
    Tensor<Dev> sum = tape.pop();
    const auto dy_view = detail::as_matrix(dy.view()), sum_view = detail::as_matrix(sum.view());
    const auto count = sum.rows();
    auto dx = reuse(dev, dy);
    Tensor<Dev> dbranch;
    if (dropout_.active(tape)) dbranch = reuse(dev, sum);
    weights_.accumulate(
        dev, tape, count, [&](Range rows, View<Dev> dgamma, View<Dev> dbeta, double old) {
          const auto slice = [&](auto view) { return view.slice(rows); };
          const auto to = slice(detail::as_matrix(dx.mut()));
          if (!dbranch)
            return layer_norm_backward(dev, slice(dy_view), slice(sum_view), weights_.gamma(),
                                       slice(mean.view()), slice(inv_std.view()), to, dgamma, dbeta,
                                       old);
          detail::residual_layer_norm_backward(
              dev, slice(dy_view), slice(sum_view), weights_.gamma(), slice(mean.view()),
              slice(inv_std.view()), detail::sliced(dropout_.rows(tape, count), rows),
              dropout_.options(tape, sum_view.columns()), to,
              slice(detail::as_matrix(dbranch.mut())), dgamma, dbeta, old);
        });
    if (!dbranch) dbranch = dx.share();
    sum = {};
    return body_.backward_onto(dev, std::move(dbranch), std::move(dx), tape);
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return body_.flops(in, batch) + 9.0 * static_cast<double>(in.count());  // 1 dropout, 8 norm
  }
  void parameters(ParameterList<Dev>& out) const {
    body_.parameters(out);
    weights_.parameters(out);
  }

 private:
  Sequential<Dev> body_;
  detail::DropoutUse<Dev> dropout_;
  detail::LayerNormParameters<Dev> weights_;
  double epsilon_;
};

}  // namespace dhp
