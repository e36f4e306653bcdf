// Batch normalisation (Ioffe & Szegedy 2015) with what stands behind it in residual networks: a residual that is
// added, and a ReLU. In pieces: sums over rows, which a layer may also sum over ranks, and the maps that use them.
// Or as a whole, on a device that has one function for all of it. x [.., C]; statistics, scale and shift are [C]
// in the accumulation type.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <optional>

namespace dhp {

/// What y = (x - mean) * inv_std * gamma + beta is computed with; [C] each.
template <class Dev>
struct BatchNormVectors {
  ConstView<Dev> mean, inv_std, gamma, beta;
};

/// Throws unless `vector` has one element of the accumulation type per column of x.
template <Device Dev>
void check_per_column(const char* what, ConstView<Dev> x, ConstView<Dev> vector) {
  check(vector.count() == x.columns() && vector.dtype() == accumulation_type(x.dtype()),
        "batch_norm: ", what, " ", vector.shape(), " of ", vector.dtype(),
        " does not fit the columns of ", x.shape(), " of ", x.dtype());
}
template <Device Dev>
void check_per_column(ConstView<Dev> x, const BatchNormVectors<Dev>& vectors) {
  check_per_column<Dev>("mean", x, vectors.mean);
  check_per_column<Dev>("inv_std", x, vectors.inv_std);
  check_per_column<Dev>("gamma", x, vectors.gamma);
  check_per_column<Dev>("beta", x, vectors.beta);
}
/// Throws unless `other` has elements like those of x, as many.
template <Device Dev>
void check_like(const char* what, ConstView<Dev> x, ConstView<Dev> other) {
  check(other.count() == x.count() && other.dtype() == x.dtype(), "batch_norm: ", what, " ",
        other.shape(), " of ", other.dtype(), " does not fit ", x.shape(), " of ", x.dtype());
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

/// y = (x - mean) * inv_std * gamma + beta + residual, and negative values cut to 0 where `relu` is true. Without
/// a residual where that is empty; y may be the residual.
template <Device Dev>
void batch_norm_apply(Dev& dev, In<Dev> x, const BatchNormVectors<Dev>& vectors, In<Dev> residual,
                      bool relu, Out<Dev> y) {
  check_per_column<Dev>(x, vectors);
  if (!residual.empty()) check_like<Dev>("the residual", x, residual);
  check_like<Dev>("the result", x, y);
  batch_norm_apply_on(dev, x, vectors, residual, relu, y);
}

/// sum_dy[c] = sum over rows of dy; sum_dy_xhat[c] = sum of dy * (x - mean) * inv_std. Where `relu` is true, dy counts
/// only where batch_norm_apply of x, without a residual, gives more than 0: that is computed again.
template <Device Dev>
void batch_norm_backward_sums(Dev& dev, In<Dev> dy, In<Dev> x, const BatchNormVectors<Dev>& vectors,
                              bool relu, Out<Dev> sum_dy, Out<Dev> sum_dy_xhat) {
  check_per_column<Dev>(x, vectors);
  check_per_column<Dev>("the sum", x, sum_dy);
  check_per_column<Dev>("the sum", x, sum_dy_xhat);
  check_like<Dev>("the gradient", x, dy);
  batch_norm_backward_sums_on(dev, dy, x, vectors, relu, sum_dy, sum_dy_xhat);
}

/// The same where a residual was added and cut with the rest: dy counts where y, their result, is more than 0.
/// That part of dy, and 0 elsewhere, is written too: it is the gradient of the residual, and what
/// batch_norm_backward_apply then takes as dy, without `relu`. dresidual may be dy.
template <Device Dev>
void batch_norm_residual_backward_sums(Dev& dev, In<Dev> dy, In<Dev> y, In<Dev> x,
                                       const BatchNormVectors<Dev>& vectors, Out<Dev> dresidual,
                                       Out<Dev> sum_dy, Out<Dev> sum_dy_xhat) {
  check_per_column<Dev>(x, vectors);
  check_per_column<Dev>("the sum", x, sum_dy);
  check_per_column<Dev>("the sum", x, sum_dy_xhat);
  check_like<Dev>("the gradient", x, dy);
  check_like<Dev>("the result", x, y);
  check_like<Dev>("the residual's gradient", x, dresidual);
  batch_norm_residual_backward_sums_on(dev, dy, y, x, vectors, dresidual, sum_dy, sum_dy_xhat);
}

/// dx = gamma * inv_std * (dy - sum_dy / count - xhat * sum_dy_xhat / count), where `relu` is true with dy as in
/// batch_norm_backward_sums; the sums and `count`, the rows they are over, may come from several ranks. dx may
/// be dy.
template <Device Dev>
void batch_norm_backward_apply(Dev& dev, In<Dev> dy, In<Dev> x,
                               const BatchNormVectors<Dev>& vectors, bool relu, In<Dev> sum_dy,
                               In<Dev> sum_dy_xhat, double count, Out<Dev> dx) {
  check_per_column<Dev>(x, vectors);
  check_per_column<Dev>("the sum", x, sum_dy);
  check_per_column<Dev>("the sum", x, sum_dy_xhat);
  check_like<Dev>("the gradient", x, dy);
  check_like<Dev>("the gradient", x, dx);
  batch_norm_backward_apply_on(dev, dy, x, vectors, relu, sum_dy, sum_dy_xhat, count, dx);
}

/// What batch_norm_whole made; mean, inv_std and squared_deviations, a sum over rows, are [C]. signs: where y is more
/// than 0, in a form of the device's own.
template <class Dev>
struct BatchNormResult {
  Tensor<Dev> y, mean, inv_std, squared_deviations, signs;
};
/// What batch_norm_whole_backward made. dresidual is empty if nobody asked for it; sums [2, C]: of dy, and of dy * xhat,
/// where y is more than 0.
template <class Dev>
struct BatchNormGradients {
  Tensor<Dev> dx, dresidual, sums;
};

/// The forward pass in one function of the device, with the statistics of these rows alone; inv_std is 1 /
/// sqrt(variance + epsilon). Nothing where the device has no such function: then the pieces are used. residual may
/// be empty.
template <Device Dev>
[[nodiscard]] std::optional<BatchNormResult<Dev>> batch_norm_whole(Dev& dev, In<Dev> x,
                                                                   In<Dev> residual, In<Dev> gamma,
                                                                   In<Dev> beta, double epsilon,
                                                                   bool relu) {
  check_per_column<Dev>("gamma", x, gamma);
  check_per_column<Dev>("beta", x, beta);
  if (!residual.empty()) check_like<Dev>("the residual", x, residual);
  return batch_norm_whole_on(dev, x, residual, gamma, beta, epsilon, relu);
}

/// The backward pass of that; signs are empty where the pieces went forward. Nothing where the device has no such
/// function: then the pieces are used, whatever went forward.
template <Device Dev>
[[nodiscard]] std::optional<BatchNormGradients<Dev>> batch_norm_whole_backward(
    Dev& dev, In<Dev> dy, In<Dev> x, const BatchNormVectors<Dev>& vectors, In<Dev> signs,
    bool residual) {
  check_per_column<Dev>(x, vectors);
  check_like<Dev>("the gradient", x, dy);
  if (signs.empty()) return {};
  return batch_norm_whole_backward_on(dev, dy, x, vectors, signs, residual);
}

}  // namespace dhp
