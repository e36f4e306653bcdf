// Layer normalization (Ba et al. 2016) over the last dim, alone or fused with dropout and a residual; and RMS norm
// (Zhang and Sennrich 2019, section 3), which has no mean and no shift. x is [.., C]; gamma and beta are [C]; mean and
// inv_std have one element per row; all four are in the accumulation type.
#pragma once

#include <dhp/ops/dropout.hpp>
#include <dhp/tensor/view.hpp>

namespace dhp {

namespace detail {

/// The dropout before a residual is added.
template <class Dev>
struct NormBranch {
  RowNumbers<Dev> rows{};
  DropoutOptions dropout{};
};

/// Throws Error unless gamma has one element per column of x, and mean and inv_std have one per row.
template <Device Dev>
void check_layer_norm(ConstView<Dev> x, ConstView<Dev> gamma, ConstView<Dev> mean,
                      ConstView<Dev> inv_std) {
  check_columns("layer_norm: the scale", gamma, x);
  check_rows("layer_norm: the mean", mean, x);
  check_rows("layer_norm: the deviation", inv_std, x);
}
template <Device Dev>
void check_layer_norm_sums(ConstView<Dev> x, ConstView<Dev> dgamma, ConstView<Dev> dbeta) {
  check_columns("layer_norm: the gradient of the scale", dgamma, x);
  check_columns("layer_norm: the gradient of the shift", dbeta, x);
}
template <Device Dev>
void check_layer_norm_dropout(ConstView<Dev> x, const RowNumbers<Dev>& rows,
                              const DropoutOptions& dropout) {
  check_dropout<Dev>(x, rows, dropout);
  check(dropout.total_columns == x.columns(), "layer_norm: rows have only ", x.columns(),
        " of their ", dropout.total_columns, " columns");
}

}  // namespace detail

/// y = (x - mean) * inv_std * gamma + beta with each row's mean and variance, where inv_std = 1 / sqrt(variance +
/// epsilon). x, y [.., C]; gamma, beta [C]. Writes mean and inv_std, [R] for R rows, for the backward pass.
template <Device Dev>
void layer_norm_forward(Dev& dev, InView<Dev> x, InView<Dev> gamma, InView<Dev> beta,
                        double epsilon, OutView<Dev> y, OutView<Dev> mean, OutView<Dev> inv_std) {
  detail::check_columns("layer_norm: the shift", beta, x);
  detail::check_layer_norm<Dev>(x, gamma, mean, inv_std);
  detail::check_like("layer_norm: the output", y, x);
  layer_norm_forward_on(dev, x, gamma, beta, epsilon, y, mean, inv_std, detail::NormBranch<Dev>(),
                        InView<Dev>(), OutView<Dev>());
}

/// dx = inv_std * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * gamma, xhat = (x - mean) * inv_std and means over
/// the row; dx may alias dy. dy, x, dx [.., C]; gamma [C]; mean, inv_std [R]. The same pass computes dgamma [C] = beta
/// * dgamma + sum over rows of dy * xhat and dbeta [C] = beta * dbeta + sum over rows of dy. With beta 0, dgamma and
/// dbeta are not read.
template <Device Dev>
void layer_norm_backward(Dev& dev, InView<Dev> dy, InView<Dev> x, InView<Dev> gamma,
                         InView<Dev> mean, InView<Dev> inv_std, OutView<Dev> dx,
                         OutView<Dev> dgamma, OutView<Dev> dbeta, double beta) {
  detail::check_like("layer_norm: dy", dy, x);
  detail::check_like("layer_norm: dx", dx, x);
  detail::check_layer_norm<Dev>(x, gamma, mean, inv_std);
  detail::check_layer_norm_sums<Dev>(x, dgamma, dbeta);
  layer_norm_backward_on(dev, dy, x, gamma, mean, inv_std, dx, dgamma, dbeta, beta,
                         detail::NormBranch<Dev>(), OutView<Dev>());
}

namespace detail {
/// y = x * inv_rms * gamma with inv_rms = 1 / sqrt(the mean of x * x over the row + epsilon). x, y [.., C]; gamma [C].
/// Writes inv_rms, [R] for R rows, for the backward pass.
template <Device Dev>
void rms_norm_forward(Dev& dev, InView<Dev> x, InView<Dev> gamma, double epsilon, OutView<Dev> y,
                      OutView<Dev> inv_rms) {
  check_columns("rms_norm: the scale", gamma, x);
  check_rows("rms_norm: the root mean square", inv_rms, x);
  check_like("rms_norm: the output", y, x);
  layer_norm_forward_on(dev, x, gamma, InView<Dev>(), epsilon, y, OutView<Dev>(), inv_rms,
                        NormBranch<Dev>(), InView<Dev>(), OutView<Dev>());
}

/// dx = inv_rms * (g - xhat * mean(g * xhat)) with g = dy * gamma and xhat = x * inv_rms; dx may alias dy. dy, x, dx
/// [.., C]; gamma [C]; inv_rms [R]. The same pass computes dgamma [C] = beta * dgamma + sum over rows of dy * xhat.
/// With beta 0, dgamma is not read.
template <Device Dev>
void rms_norm_backward(Dev& dev, InView<Dev> dy, InView<Dev> x, InView<Dev> gamma,
                       InView<Dev> inv_rms, OutView<Dev> dx, OutView<Dev> dgamma, double beta) {
  check_like("rms_norm: dy", dy, x);
  check_like("rms_norm: dx", dx, x);
  check_columns("rms_norm: the scale", gamma, x);
  check_rows("rms_norm: the root mean square", inv_rms, x);
  check_columns("rms_norm: the gradient of the scale", dgamma, x);
  layer_norm_backward_on(dev, dy, x, gamma, InView<Dev>(), inv_rms, dx, dgamma, OutView<Dev>(),
                         beta, NormBranch<Dev>(), OutView<Dev>());
}

/// sum = residual + dropout(x), rounded once, and y = layer_norm(sum). x, residual, sum, y [.., C]; gamma, beta [C].
/// Writes mean and inv_std, [R] for R rows. sum may alias x, the residual, or, if no backward pass follows, y.
/// dropout.total_columns must be x's columns; probability 0 draws no random numbers. The backward pass reads sum:
/// saving the normalized sum would take the same memory and a second rounding, and y cannot be inverted where gamma is
/// 0 or much smaller than beta.
template <Device Dev>
void residual_layer_norm_forward(Dev& dev, InView<Dev> x, InView<Dev> residual,
                                 const RowNumbers<Dev>& rows, const DropoutOptions& dropout,
                                 InView<Dev> gamma, InView<Dev> beta, double epsilon,
                                 OutView<Dev> sum, OutView<Dev> y, OutView<Dev> mean,
                                 OutView<Dev> inv_std) {
  check_layer_norm_dropout<Dev>(x, rows, dropout);
  check_like("layer_norm: the residual", residual, x);
  check_like("layer_norm: the sum", sum, x);
  check_like("layer_norm: the output", y, x);
  check_columns("layer_norm: the shift", beta, x);
  check_layer_norm<Dev>(x, gamma, mean, inv_std);
  layer_norm_forward_on(dev, x, gamma, beta, epsilon, y, mean, inv_std,
                        NormBranch<Dev>{rows, dropout}, residual, sum);
}

/// Writes dresidual, the gradient of the sum; dx, the dropout of the gradient of the sum before rounding; and dgamma
/// and dbeta like layer_norm_backward. dy, sum, dresidual, dx [.., C]; gamma, dgamma, dbeta [C]; mean, inv_std [R].
/// dresidual may alias dy, and dx may alias sum.
template <Device Dev>
void residual_layer_norm_backward(Dev& dev, InView<Dev> dy, InView<Dev> sum, InView<Dev> gamma,
                                  InView<Dev> mean, InView<Dev> inv_std,
                                  const RowNumbers<Dev>& rows, const DropoutOptions& dropout,
                                  OutView<Dev> dresidual, OutView<Dev> dx, OutView<Dev> dgamma,
                                  OutView<Dev> dbeta, double beta) {
  check_layer_norm_dropout<Dev>(sum, rows, dropout);
  check_like("layer_norm: dy", dy, sum);
  check_like("layer_norm: dresidual", dresidual, sum);
  check_like("layer_norm: dx", dx, sum);
  check_layer_norm<Dev>(sum, gamma, mean, inv_std);
  check_layer_norm_sums<Dev>(sum, dgamma, dbeta);
  layer_norm_backward_on(dev, dy, sum, gamma, mean, inv_std, dresidual, dgamma, dbeta, beta,
                         NormBranch<Dev>{rows, dropout}, dx);
}
}  // namespace detail

}  // namespace dhp
