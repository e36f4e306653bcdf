// RmsNorm (Zhang and Sennrich 2019, section 3) normalizes over the last dim: a LayerNorm without mean and bias. Gamma
// stays in the accumulation type.
#pragma once

#include <dhp/nn/layer_norm.hpp>

namespace dhp {

/// x and y are [.., columns]; the parameter gamma is "name.weight" [columns].
template <class Dev>
class RmsNorm : public ElementwiseLayer<Dev, 4> {
 public:
  RmsNorm(ModelBuilder<Dev>& build, const std::string& name, std::int64_t columns,
          double epsilon = 1e-6)
      : gamma_(detail::norm_parameter(build, name + ".weight", columns, 1)),
        shares_(build.row_shares()),
        epsilon_(epsilon) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), x.shape());
    Tensor<Dev> inv_rms(dev, accumulation_type(x.dtype()), {x.rows()});
    detail::rms_norm_forward(dev, x.view(), gamma_->value, epsilon_, y.mut(), inv_rms.mut());
    tape.push(std::move(x));
    tape.push(std::move(inv_rms));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    const Tensor<Dev> inv_rms = tape.pop();
    const Tensor<Dev> x = tape.pop();
    const auto gradient = dy.view();
    auto dx = reuse(dev, dy);
    shares_.for_pieces(tape, x.rows(), [&](Range of_group) {
      const auto of = [&](auto view) { return view.slice(of_group); };
      gamma_->accumulate(dev, [&](View<Dev> dgamma, double old) {
        detail::rms_norm_backward(dev, of(detail::as_matrix(gradient)),
                                  of(detail::as_matrix(x.view())), gamma_->value,
                                  of(inv_rms.view()), of(detail::as_matrix(dx.mut())), dgamma, old);
      });
    });
    return dx;
  }

  void parameters(ParameterList<Dev>& out) const { out.push_back(gamma_); }

 private:
  Parameter<Dev> gamma_;
  RowShares<Dev> shares_;
  double epsilon_;
};

}  // namespace dhp
