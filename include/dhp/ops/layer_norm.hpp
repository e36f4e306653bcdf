// Layer normalisation (Ba et al. 2016) over the last dim. x [.., C]; scale and shift [C], mean and inv_std
// one per row, all in the accumulation type. The gradient of the shift is column_sums(dy).
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

/// y = (x - mean) * inv_std * gamma + beta with mean and variance of each row; mean and inv_std are kept
/// for the backward pass.
template <Device Dev>
void layer_norm_forward(Dev& dev, In<Dev> x, In<Dev> gamma, In<Dev> beta, double epsilon,
                        Out<Dev> y, Out<Dev> mean, Out<Dev> inv_std) {
  check(gamma.count() == x.columns() && beta.count() == x.columns(), "layer_norm: scale ",
        gamma.shape(), " and shift ", beta.shape(), " do not fit the columns of ", x.shape());
  check(mean.count() == x.rows() && inv_std.count() == x.rows() && y.count() == x.count(),
        "layer_norm: the outputs do not fit ", x.shape());
  layer_norm_forward_on(dev, x, gamma, beta, epsilon, y, mean, inv_std);
}

template <Device Dev>
void layer_norm_backward_data(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> gamma, In<Dev> mean,
                              In<Dev> inv_std, Out<Dev> dx) {
  check(dy.count() == x.count() && dx.count() == x.count(), "layer_norm: the gradients ",
        dy.shape(), " and ", dx.shape(), " do not fit ", x.shape());
  check(gamma.count() == x.columns() && mean.count() == x.rows() && inv_std.count() == x.rows(),
        "layer_norm: scale or statistics do not fit ", x.shape());
  layer_norm_backward_data_on(dev, dy, x, gamma, mean, inv_std, dx);
}

/// dgamma = beta * dgamma + sum over rows of dy * (x - mean) * inv_std
template <Device Dev>
void layer_norm_backward_gamma(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> mean, In<Dev> inv_std,
                               Out<Dev> dgamma, double beta) {
  check(dy.count() == x.count() && dgamma.count() == x.columns() && mean.count() == x.rows() &&
            inv_std.count() == x.rows(),
        "layer_norm: the gradient of the scale ", dgamma.shape(), " does not fit ", x.shape());
  layer_norm_backward_gamma_on(dev, dy, x, mean, inv_std, dgamma, beta);
}

}  // namespace dhp
