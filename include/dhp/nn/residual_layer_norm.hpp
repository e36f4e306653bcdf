// ResidualLayerNorm: y = norm(x + dropout(body(x))), the half block of a transformer that normalises last. What
// follows the body is one pass over memory, where Dropout, Residual and LayerNorm take three, and on the way
// back dropout costs no pass of its own. Parameters, numbers of randomness and masks are those of the three.
#pragma once

#include <dhp/nn/dropout.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/sequential.hpp>

namespace dhp {

struct ResidualLayerNormOptions {
  std::int64_t columns = 0;
  double dropout = 0;  ///< probability
  double epsilon = 1e-12;
};

/// body maps [.., C] to [.., C]; the norm's weights are "name.weight" and "name.bias" [C].
template <class Dev>
class ResidualLayerNorm {
 public:
  ResidualLayerNorm(ModelBuilder<Dev>& build, const std::string& name, Sequential<Dev> body,
                    ResidualLayerNormOptions options)
      : body_(std::move(body)),
        dropout_(build, options.dropout),
        weights_(build, name, options.columns),
        epsilon_(options.epsilon) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto branch = body_.forward(dev, x.share(), tape);
    Tensor<Dev> y(dev, x.dtype(), x.shape());
    Tensor<Dev> mean(dev, accumulation_type(x.dtype()), {x.rows()});
    Tensor<Dev> inv_std(dev, accumulation_type(x.dtype()), {x.rows()});
    const auto normalise = [&](View<Dev> sum) {
      residual_layer_norm_forward(dev, branch.view(), x.view(), dropout_.rows(tape, x.rows()),
                                  dropout_.options(tape, x.columns()), weights_.gamma(),
                                  weights_.beta(), epsilon_, sum, y.mut(), mean.mut(),
                                  inv_std.mut());
    };
    if (!tape.keeps()) {
      normalise(y.mut());
      return y;
    }
    Tensor<Dev> fresh;
    auto& sum = writable(dev, branch, fresh);
    normalise(sum.mut());
    tape.push(std::move(sum));
    tape.push(std::move(mean));
    tape.push(std::move(inv_std));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    const Tensor<Dev> inv_std = tape.pop();
    const Tensor<Dev> mean = tape.pop();
    Tensor<Dev> sum = tape.pop();
    weights_.accumulate(dev, dy, sum, mean, inv_std);
    Tensor<Dev> fresh, other;
    auto& dx = writable(dev, dy, fresh);
    Tensor<Dev> dbranch;
    if (dropout_.active(tape)) {
      auto& through = writable(dev, sum, other);
      residual_layer_norm_backward_data(dev, dy.view(), sum.view(), weights_.gamma(), mean.view(),
                                        inv_std.view(), dropout_.rows(tape, sum.rows()),
                                        dropout_.options(tape, sum.columns()), dx.mut(),
                                        through.mut());
      dbranch = std::move(through);
    } else {
      layer_norm_backward_data(dev, dy.view(), sum.view(), weights_.gamma(), mean.view(),
                               inv_std.view(), dx.mut());
      dbranch = dx.share();
    }
    sum = {};
    return sum_of(dev, body_.backward(dev, std::move(dbranch), tape), std::move(dx));
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  /// Those of its parts: dropout counts one an element, the norm eight.
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return body_.flops(in, batch) + 9.0 * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>& out) const {
    body_.parameters(out);
    weights_.parameters(out);
  }

 private:
  /// `read` where nobody else holds it: an op writes over what it has read. Else `fresh`, made like it.
  static Tensor<Dev>& writable(Dev& dev, Tensor<Dev>& read, Tensor<Dev>& fresh) {
    if (read.unique()) return read;
    fresh = Tensor<Dev>(dev, read.dtype(), read.shape());
    return fresh;
  }

  Sequential<Dev> body_;
  DropoutUse<Dev> dropout_;
  LayerNormParameters<Dev> weights_;
  double epsilon_;
};

}  // namespace dhp
