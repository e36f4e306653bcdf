// Layer normalisation (Ba et al. 2016) over the last dim. x [.., C]; scale and shift [C], mean and inv_std
// one per row, all in the accumulation type. The gradient of the shift is column_sums(dy).
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

namespace detail {

/// Throw unless `vector` has one element of the accumulation type per column or row of x.
template <Device Dev>
void check_layer_norm_columns(const char* what, ConstView<Dev> x, ConstView<Dev> vector) {
  check(vector.count() == x.columns() && vector.dtype() == accumulation_type(x.dtype()),
        "layer_norm: ", what, " ", vector.shape(), " of ", vector.dtype(),
        " does not fit the columns of ", x.shape(), " of ", x.dtype());
}
template <Device Dev>
void check_layer_norm_rows(const char* what, ConstView<Dev> x, ConstView<Dev> vector) {
  check(vector.count() == x.rows() && vector.dtype() == accumulation_type(x.dtype()),
        "layer_norm: ", what, " ", vector.shape(), " of ", vector.dtype(),
        " does not fit the rows of ", x.shape(), " of ", x.dtype());
}
/// Throws unless `other` has the shape and type of x.
template <Device Dev>
void check_layer_norm_like(const char* what, ConstView<Dev> x, ConstView<Dev> other) {
  check(other.count() == x.count() && other.dtype() == x.dtype(), "layer_norm: ", what, " ",
        other.shape(), " of ", other.dtype(), " does not fit ", x.shape(), " of ", x.dtype());
}

}  // namespace detail

/// y = (x - mean) * inv_std * gamma + beta with mean and variance of each row, inv_std = 1 /
/// sqrt(variance + epsilon); mean and inv_std are kept for the backward pass.
template <Device Dev>
void layer_norm_forward(Dev& dev, In<Dev> x, In<Dev> gamma, In<Dev> beta, double epsilon,
                        Out<Dev> y, Out<Dev> mean, Out<Dev> inv_std) {
  detail::check_layer_norm_columns<Dev>("the scale", x, gamma);
  detail::check_layer_norm_columns<Dev>("the shift", x, beta);
  detail::check_layer_norm_rows<Dev>("the mean", x, mean);
  detail::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  detail::check_layer_norm_like<Dev>("the output", x, y);
  layer_norm_forward_on(dev, x, gamma, beta, epsilon, y, mean, inv_std);
}

/// dx = inv_std * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * gamma, xhat = (x - mean) * inv_std
/// and means over the row; dx may be dy.
template <Device Dev>
void layer_norm_backward_data(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> gamma, In<Dev> mean,
                              In<Dev> inv_std, Out<Dev> dx) {
  detail::check_layer_norm_like<Dev>("the gradient", x, dy);
  detail::check_layer_norm_like<Dev>("the gradient", x, dx);
  detail::check_layer_norm_columns<Dev>("the scale", x, gamma);
  detail::check_layer_norm_rows<Dev>("the mean", x, mean);
  detail::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  layer_norm_backward_data_on(dev, dy, x, gamma, mean, inv_std, dx);
}

/// dgamma = beta * dgamma + sum over rows of dy * (x - mean) * inv_std
template <Device Dev>
void layer_norm_backward_gamma(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> mean, In<Dev> inv_std,
                               Out<Dev> dgamma, double beta) {
  detail::check_layer_norm_like<Dev>("the gradient", x, dy);
  detail::check_layer_norm_columns<Dev>("the gradient of the scale", x, dgamma);
  detail::check_layer_norm_rows<Dev>("the mean", x, mean);
  detail::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  layer_norm_backward_gamma_on(dev, dy, x, mean, inv_std, dgamma, beta);
}

}  // namespace dhp
