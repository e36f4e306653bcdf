// Layer normalization (Ba et al. 2016) over the last dim, alone or fused with dropout and a
// residual. x [.., C]; gamma and beta [C], mean and inv_std one per row, all in the accumulation
// type.
#pragma once

#include <dhp/ops/dropout.hpp>
#include <dhp/tensor/view.hpp>

namespace dhp {

namespace ops {

/// Throw unless `vector` has one element of the accumulation type per column, or row, of x.
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
template <Device Dev>
void check_layer_norm_dropout(ConstView<Dev> x, const RowNumbers<Dev>& rows,
                              const DropoutOptions& dropout) {
  check_dropout<Dev>(x, rows, dropout);
  check(dropout.total_columns == x.columns(), "layer_norm: rows of ", x.columns(), " columns of ",
        dropout.total_columns, " are not whole");
}

}  // namespace ops

/// y = (x - mean) * inv_std * gamma + beta with each row's mean and variance, inv_std = 1 /
/// sqrt(variance + epsilon); writes mean and inv_std for backward.
template <Device Dev>
void layer_norm_forward(Dev& dev, In<Dev> x, In<Dev> gamma, In<Dev> beta, double epsilon,
                        Out<Dev> y, Out<Dev> mean, Out<Dev> inv_std) {
  ops::check_layer_norm_columns<Dev>("the scale", x, gamma);
  ops::check_layer_norm_columns<Dev>("the shift", x, beta);
  ops::check_layer_norm_rows<Dev>("the mean", x, mean);
  ops::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  ops::check_layer_norm_like<Dev>("the output", x, y);
  layer_norm_forward_on(dev, x, gamma, beta, epsilon, y, mean, inv_std);
}

/// dx = inv_std * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * gamma, xhat = (x - mean) *
/// inv_std and means over the row; dx may alias dy.
template <Device Dev>
void layer_norm_backward_data(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> gamma, In<Dev> mean,
                              In<Dev> inv_std, Out<Dev> dx) {
  ops::check_layer_norm_like<Dev>("the gradient", x, dy);
  ops::check_layer_norm_like<Dev>("the gradient", x, dx);
  ops::check_layer_norm_columns<Dev>("the scale", x, gamma);
  ops::check_layer_norm_rows<Dev>("the mean", x, mean);
  ops::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  layer_norm_backward_data_on(dev, dy, x, gamma, mean, inv_std, dx);
}

/// dgamma = beta * dgamma + sum over rows of dy * xhat; dbeta = beta * dbeta + sum over rows of dy.
/// With beta 0 neither is read.
template <Device Dev>
void layer_norm_backward_sums(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> mean, In<Dev> inv_std,
                              Out<Dev> dgamma, Out<Dev> dbeta, double beta) {
  ops::check_layer_norm_like<Dev>("the gradient", x, dy);
  ops::check_layer_norm_columns<Dev>("the gradient of the scale", x, dgamma);
  ops::check_layer_norm_columns<Dev>("the gradient of the shift", x, dbeta);
  ops::check_layer_norm_rows<Dev>("the mean", x, mean);
  ops::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  layer_norm_backward_sums_on(dev, dy, x, mean, inv_std, dgamma, dbeta, beta);
}

/// sum = residual + dropout(x), rounded once; y = layer_norm(sum); writes mean and inv_std. sum may
/// alias x, the residual, or y if backward is not needed. dropout.total_columns must be x's
/// columns; with probability 0 no random number is drawn. Backward reads the sum. The normalized
/// sum would cost as many bytes and a second rounding; y cannot be inverted where gamma is 0 or
/// much smaller than beta.
template <Device Dev>
void residual_layer_norm_forward(Dev& dev, In<Dev> x, In<Dev> residual, const RowNumbers<Dev>& rows,
                                 const DropoutOptions& dropout, In<Dev> gamma, In<Dev> beta,
                                 double epsilon, Out<Dev> sum, Out<Dev> y, Out<Dev> mean,
                                 Out<Dev> inv_std) {
  ops::check_layer_norm_dropout<Dev>(x, rows, dropout);
  ops::check_layer_norm_like<Dev>("the residual", x, residual);
  ops::check_layer_norm_like<Dev>("the sum", x, sum);
  ops::check_layer_norm_like<Dev>("the output", x, y);
  ops::check_layer_norm_columns<Dev>("the scale", x, gamma);
  ops::check_layer_norm_columns<Dev>("the shift", x, beta);
  ops::check_layer_norm_rows<Dev>("the mean", x, mean);
  ops::check_layer_norm_rows<Dev>("the deviation", x, inv_std);
  residual_layer_norm_forward_on(dev, x, residual, rows, dropout, gamma, beta, epsilon, sum, y,
                                 mean, inv_std);
}

/// dresidual = the gradient of the sum, as from layer_norm_backward_data; dx = dropout of its
/// unrounded value. dresidual may alias dy, and dx the sum.
template <Device Dev>
void residual_layer_norm_backward_data(Dev& dev, In<Dev> dy, In<Dev> sum, In<Dev> gamma,
                                       In<Dev> mean, In<Dev> inv_std, const RowNumbers<Dev>& rows,
                                       const DropoutOptions& dropout, Out<Dev> dresidual,
                                       Out<Dev> dx) {
  ops::check_layer_norm_dropout<Dev>(sum, rows, dropout);
  ops::check_layer_norm_like<Dev>("the gradient", sum, dy);
  ops::check_layer_norm_like<Dev>("the gradient of the residual", sum, dresidual);
  ops::check_layer_norm_like<Dev>("the gradient", sum, dx);
  ops::check_layer_norm_columns<Dev>("the scale", sum, gamma);
  ops::check_layer_norm_rows<Dev>("the mean", sum, mean);
  ops::check_layer_norm_rows<Dev>("the deviation", sum, inv_std);
  residual_layer_norm_backward_data_on(dev, dy, sum, gamma, mean, inv_std, rows, dropout, dresidual,
                                       dx);
}

}  // namespace dhp
