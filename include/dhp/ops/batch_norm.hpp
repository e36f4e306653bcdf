// Batch normalisation (Ioffe & Szegedy 2015) in pieces: sums over rows, which a layer may also sum over
// ranks, and the maps that use them. x [.., C]; statistics, scale and shift are [C] in the accumulation type.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

/// Throws unless `vector` has one element of the accumulation type per column of x.
template <Device Dev>
void check_per_column(const char* what, ConstView<Dev> x, ConstView<Dev> vector) {
  check(vector.count() == x.columns() && vector.dtype() == accumulation_type(x.dtype()),
        "batch_norm: ", what, " ", vector.shape(), " of ", vector.dtype(),
        " does not fit the columns of ", x.shape(), " of ", x.dtype());
}

/// sum[c] = sum over rows of x
template <Device Dev>
void batch_norm_sums(Dev& dev, In<Dev> x, Out<Dev> sum) {
  check_per_column<Dev>("the sum", x, sum);
  batch_norm_sums_on(dev, x, sum);
}

/// sum[c] = sum over rows of (x - mean)^2
template <Device Dev>
void batch_norm_squared_deviations(Dev& dev, In<Dev> x, In<Dev> mean, Out<Dev> sum) {
  check_per_column<Dev>("the mean", x, mean);
  check_per_column<Dev>("the sum", x, sum);
  batch_norm_squared_deviations_on(dev, x, mean, sum);
}

/// y = (x - mean) * inv_std * gamma + beta, and negative values cut to 0 where `relu` is true.
template <Device Dev>
void batch_norm_apply(Dev& dev, In<Dev> x, In<Dev> mean, In<Dev> inv_std, In<Dev> gamma,
                      In<Dev> beta, bool relu, Out<Dev> y) {
  for (const auto& vector : {mean, inv_std, gamma, beta})
    check_per_column<Dev>("a vector", x, vector);
  check(y.count() == x.count() && y.dtype() == x.dtype(), "batch_norm: ", x.shape(), " of ",
        x.dtype(), " does not fit ", y.shape(), " of ", y.dtype());
  batch_norm_apply_on(dev, x, mean, inv_std, gamma, beta, relu, y);
}

/// sum_dy[c] = sum over rows of dy; sum_dy_xhat[c] = sum of dy * (x - mean) * inv_std.
template <Device Dev>
void batch_norm_backward_sums(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> mean, In<Dev> inv_std,
                              Out<Dev> sum_dy, Out<Dev> sum_dy_xhat) {
  for (const auto& vector : {mean, inv_std, ConstView<Dev>(sum_dy), ConstView<Dev>(sum_dy_xhat)})
    check_per_column<Dev>("a vector", x, vector);
  check(dy.count() == x.count() && dy.dtype() == x.dtype(), "batch_norm: the gradient ", dy.shape(),
        " does not fit ", x.shape());
  batch_norm_backward_sums_on(dev, dy, x, mean, inv_std, sum_dy, sum_dy_xhat);
}

/// dx = gamma * inv_std * (dy - sum_dy / count - xhat * sum_dy_xhat / count); the sums and `count`, the
/// rows they are over, may come from several ranks.
template <Device Dev>
void batch_norm_backward_apply(Dev& dev, In<Dev> dy, In<Dev> x, In<Dev> mean, In<Dev> inv_std,
                               In<Dev> gamma, In<Dev> sum_dy, In<Dev> sum_dy_xhat, double count,
                               Out<Dev> dx) {
  for (const auto& vector : {mean, inv_std, gamma, sum_dy, sum_dy_xhat})
    check_per_column<Dev>("a vector", x, vector);
  check(dy.count() == x.count() && dx.count() == x.count() && dy.dtype() == x.dtype() &&
            dx.dtype() == x.dtype(),
        "batch_norm: the gradients ", dy.shape(), " and ", dx.shape(), " do not fit ", x.shape());
  batch_norm_backward_apply_on(dev, dy, x, mean, inv_std, gamma, sum_dy, sum_dy_xhat, count, dx);
}

}  // namespace dhp
