// LayerNorm (Ba et al. 2016) normalizes over the last dim. Gamma and beta stay in the accumulation type.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/layer_norm.hpp>

namespace dhp {

namespace detail {
/// Makes a parameter [columns] of a norm, which stays in the accumulation type.
template <class Dev>
[[nodiscard]] Parameter<Dev> norm_parameter(ModelBuilder<Dev>& build, const std::string& name,
                                            std::int64_t columns, double value) {
  return build.parameter({.name = name,
                          .shape = {columns},
                          .init = constant(value),
                          .decays = false,
                          .keep_fp32 = true},
                         {.shares = true});
}

/// The parameters gamma, "name.weight", and beta, "name.bias", both [columns].
template <class Dev>
class LayerNormParameters {
 public:
  LayerNormParameters(ModelBuilder<Dev>& build, const std::string& name, std::int64_t columns)
      : gamma_(norm_parameter(build, name + ".weight", columns, 1)),
        beta_(norm_parameter(build, name + ".bias", columns, 0)),
        shares_(build.row_shares()) {}

  [[nodiscard]] ConstView<Dev> gamma() const { return gamma_->value; }
  [[nodiscard]] ConstView<Dev> beta() const { return beta_->value; }

  /// Adds the contributions of this rank's rows to both gradients, piece by piece: write(rows, dgamma, dbeta, beta)
  /// stores beta * old value + the contribution of `rows` in each gradient.
  void accumulate(Dev& dev, const Tape<Dev>& tape, std::int64_t rows,
                  FunctionRef<void(Range, View<Dev>, View<Dev>, double)> write) {
    shares_.for_pieces(tape, rows, [&](Range piece) {
      accumulate_all(dev, {gamma_, beta_}, [&](const std::vector<View<Dev>>& views, double old) {
        write(piece, views[0], views[1], old);
      });
    });
  }
  void parameters(ParameterList<Dev>& out) const {
    out.push_back(gamma_);
    out.push_back(beta_);
  }

 private:
  Parameter<Dev> gamma_, beta_;
  RowShares<Dev> shares_;
};
}  // namespace detail

/// x and y have the same shape, [.., columns].
template <class Dev>
class LayerNorm : public ElementwiseLayer<Dev, 8> {
 public:
  LayerNorm(ModelBuilder<Dev>& build, const std::string& name, std::int64_t columns,
            double epsilon = 1e-12)
      : weights_(build, name, columns), epsilon_(epsilon) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), x.shape());
    Tensor<Dev> mean(dev, accumulation_type(x.dtype()), {x.rows()});
    Tensor<Dev> inv_std(dev, accumulation_type(x.dtype()), {x.rows()});
    layer_norm_forward(dev, x.view(), weights_.gamma(), weights_.beta(), epsilon_, y.mut(),
                       mean.mut(), inv_std.mut());
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
    weights_.accumulate(dev, tape, x.rows(),
                        [&](Range rows, View<Dev> dgamma, View<Dev> dbeta, double old) {
                          const auto of = [&](auto view) { return view.slice(rows); };
                          layer_norm_backward(dev, of(detail::as_matrix(dy.view())),
                                              of(detail::as_matrix(x.view())), weights_.gamma(),
                                              of(mean.view()), of(inv_std.view()),
                                              of(detail::as_matrix(dx.mut())), dgamma, dbeta, old);
                        });
    return dx;
  }

  void parameters(ParameterList<Dev>& out) const { weights_.parameters(out); }

 private:
  detail::LayerNormParameters<Dev> weights_;
  double epsilon_;
};

}  // namespace dhp
