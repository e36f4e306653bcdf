// LayerNorm (Ba et al. 2016) over the last dim. Scale and shift stay in the accumulation type.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/layer_norm.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

template <class Dev>
class LayerNorm {
 public:
  LayerNorm(Build<Dev>& build, const std::string& name, std::int64_t columns,
            double epsilon = 1e-12)
      : epsilon_(epsilon),
        gamma_(build.parameter({.name = name + ".weight",
                                .shape = {columns},
                                .init = constant(1),
                                .decays = false,
                                .exact = true})),
        beta_(build.parameter({.name = name + ".bias",
                               .shape = {columns},
                               .init = constant(0),
                               .decays = false,
                               .exact = true})) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), x.shape());
    Tensor<Dev> mean(dev, accumulation_type(x.dtype()), {x.rows()});
    Tensor<Dev> inv_std(dev, accumulation_type(x.dtype()), {x.rows()});
    layer_norm_forward(dev, x.view(), gamma_->value, beta_->value, epsilon_, y.mut(), mean.mut(),
                       inv_std.mut());
    tape.push(std::move(x));
    tape.push(std::move(mean));
    tape.push(std::move(inv_std));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    const Tensor<Dev> inv_std = tape.pop();
    const Tensor<Dev> mean = tape.pop();
    const Tensor<Dev> x = tape.pop();
    Tensor<Dev> dx(dev, x.dtype(), x.shape());
    layer_norm_backward_data(dev, dy.view(), x.view(), gamma_->value, mean.view(), inv_std.view(),
                             dx.mut());
    gamma_->accumulate(dev, [&](View<Dev> gradient, double beta) {
      layer_norm_backward_gamma(dev, dy.view(), x.view(), mean.view(), inv_std.view(), gradient,
                                beta);
    });
    beta_->accumulate(
        dev, [&](View<Dev> gradient, double beta) { column_sums(dev, dy.view(), gradient, beta); });
    return dx;
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return 8.0 * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>& out) const {
    out.push_back(gamma_);
    out.push_back(beta_);
  }

 private:
  double epsilon_;
  Parameter<Dev> gamma_;
  Parameter<Dev> beta_;
};

}  // namespace dhp
