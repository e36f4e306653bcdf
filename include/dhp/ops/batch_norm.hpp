// Batch normalization (Ioffe & Szegedy 2015), optionally with a residual addition and a ReLU. The unfused ops are sums
// over rows, which a layer may reduce over ranks, and maps that use these sums. Some devices have fused ops. x is [..,
// C]; statistics, gamma and beta are [C] in the accumulation type.
#pragma once

#include <dhp/ops/checks.hpp>
#include <dhp/tensor/tensor.hpp>

#include <cmath>
#include <optional>
#include <utility>

namespace dhp::detail {

/// The vectors [C] in y = (x - mean) * inv_std * gamma + beta.
template <class Dev>
struct BatchNormVectors {
  ConstView<Dev> mean, inv_std, gamma, beta;
};
template <Device Dev>
void check_norm(ConstView<Dev> x, const BatchNormVectors<Dev>& vectors) {
  check_columns("batch_norm: mean", vectors.mean, x);
  check_columns("batch_norm: inv_std", vectors.inv_std, x);
  check_columns("batch_norm: gamma", vectors.gamma, x);
  check_columns("batch_norm: beta", vectors.beta, x);
}
/// sum [C] = the sum of (x - mean)^2 over the rows of x [.., C], with mean [C].
template <Device Dev>
void batch_norm_squared_deviations(Dev& dev, InView<Dev> x, InView<Dev> mean, OutView<Dev> sum) {
  check_columns("batch_norm: mean", mean, x);
  check_columns("batch_norm: sum", sum, x);
  batch_norm_squared_deviations_on(dev, x, mean, sum);
}

/// Writes mean, inv_std = 1 / sqrt(variance + epsilon), and squared_deviations = the sum of (x - mean)^2, all [C], from
/// the sums [2, C] of x and of x^2 over `rows` rows. The variance E[x^2] - E[x]^2 is computed in double, because the
/// difference cancels if the mean is much larger than the deviations.
template <Device Dev>
void batch_norm_from_sums(Dev& dev, InView<Dev> sums, std::int64_t rows, double epsilon,
                          OutView<Dev> mean, OutView<Dev> inv_std,
                          OutView<Dev> squared_deviations) {
  check(rows > 0, "batch_norm: sums over ", rows, " rows have no mean; give 1 row or more");
  for (const auto& [name, vector] : {std::pair{"mean ", mean},
                                     {"inv_std ", inv_std},
                                     {"squared_deviations ", squared_deviations}})
    check(vector.dtype() == sums.dtype() && 2 * vector.count() == sums.count(),
          "batch_norm: ", name, vector.shape(), " of ", vector.dtype(), " does not fit sums ",
          sums.shape(), " of ", sums.dtype(), "; make it [", sums.count() / 2, "] of ",
          sums.dtype());
  batch_norm_from_sums_on(dev, sums, rows, epsilon, mean, inv_std, squared_deviations);
}

/// y = (x - mean) * inv_std * gamma + beta + residual, then ReLU if `relu`. x, residual and y are [.., C], vectors [C].
/// residual may be empty; y may alias the residual.
template <Device Dev>
void batch_norm_apply(Dev& dev, InView<Dev> x, const BatchNormVectors<Dev>& vectors,
                      InView<Dev> residual, bool relu, OutView<Dev> y) {
  check_norm<Dev>(x, vectors);
  if (!residual.empty()) check_like("batch_norm: residual", residual, x);
  check_like("batch_norm: y", y, x);
  batch_norm_apply_on(dev, x, vectors, residual, relu, y);
}

/// sum_dy [C] = the sum of dy [.., C] over rows; sum_dy_xhat [C] = the sum of dy * xhat over rows, where xhat = (x -
/// mean) * inv_std of x [.., C]. With `relu`, dy counts as 0 where the output (without residual, recomputed) is not
/// positive. After a residual, the forward result y [.., C] masks dy instead: dresidual [.., C] = dy where y > 0, else
/// 0. This is the residual's gradient, and the dy for batch_norm_backward_apply without `relu`. dresidual may alias dy.
template <Device Dev>
void batch_norm_backward_sums(Dev& dev, InView<Dev> dy, InView<Dev> x,
                              const BatchNormVectors<Dev>& vectors, bool relu, OutView<Dev> sum_dy,
                              OutView<Dev> sum_dy_xhat, InView<Dev> y = {},
                              OutView<Dev> dresidual = {}) {
  check_norm<Dev>(x, vectors);
  check_columns("batch_norm: sum_dy", sum_dy, x);
  check_columns("batch_norm: sum_dy_xhat", sum_dy_xhat, x);
  check_like("batch_norm: dy", dy, x);
  if (!y.empty()) {
    check_like("batch_norm: y", y, x);
    check_like("batch_norm: dresidual", dresidual, x);
  }
  batch_norm_backward_sums_on(dev, dy, x, vectors, relu, sum_dy, sum_dy_xhat, y, dresidual);
}

/// dx = gamma * inv_std * (dy - sum_dy / count - xhat * sum_dy_xhat / count). If `relu`, dy is masked as in
/// batch_norm_backward_sums. dy, x, dx [.., C]; sum_dy, sum_dy_xhat [C]. These sums and `count`, the number of rows,
/// may be reduced over ranks. dx may alias dy.
template <Device Dev>
void batch_norm_backward_apply(Dev& dev, InView<Dev> dy, InView<Dev> x,
                               const BatchNormVectors<Dev>& vectors, bool relu, InView<Dev> sum_dy,
                               InView<Dev> sum_dy_xhat, double count, OutView<Dev> dx) {
  check_norm<Dev>(x, vectors);
  check_columns("batch_norm: sum_dy", sum_dy, x);
  check_columns("batch_norm: sum_dy_xhat", sum_dy_xhat, x);
  check_like("batch_norm: dy", dy, x);
  check_like("batch_norm: dx", dx, x);
  check(count > 0, "batch_norm: a count of ", count, " rows has no mean; give 1 row or more");
  batch_norm_backward_apply_on(dev, dy, x, vectors, relu, sum_dy, sum_dy_xhat, count, dx);
}

/// The result of the fused forward pass. mean, inv_std and squared_deviations (summed over rows) are [C]. signs tells
/// where y > 0 if `relu`, in a device's format.
template <class Dev>
struct BatchNormResult {
  Tensor<Dev> y, mean, inv_std, squared_deviations, signs;
};
/// The result of the fused backward pass. dresidual is empty unless requested. sums [2, C] holds the sums of dy and of
/// dy * xhat over rows, where dy is masked by y > 0.
template <class Dev>
struct BatchNormGradients {
  Tensor<Dev> dx, dresidual, sums;
};

/// Fallbacks for devices without fused kernels.
template <Device Dev>
[[nodiscard]] std::optional<BatchNormResult<Dev>> batch_norm_fused_on(Dev&, const auto&...) {
  return {};
}
template <Device Dev>
[[nodiscard]] std::optional<BatchNormResult<Dev>> batch_norm_fused_apply_on(Dev&, const auto&...) {
  return {};
}
template <Device Dev>
[[nodiscard]] std::optional<BatchNormGradients<Dev>> batch_norm_fused_backward_on(Dev&,
                                                                                  const auto&...) {
  return {};
}

/// The fused forward pass, with the statistics of these rows and inv_std = 1 / sqrt(variance + epsilon). x and residual
/// [.., C], where residual may be empty; gamma, beta [C]. Returns nullopt if the caller must use the unfused ops.
template <Device Dev>
[[nodiscard]] std::optional<BatchNormResult<Dev>> batch_norm_fused(Dev& dev, InView<Dev> x,
                                                                   InView<Dev> residual,
                                                                   InView<Dev> gamma,
                                                                   InView<Dev> beta, double epsilon,
                                                                   bool relu) {
  check_columns("batch_norm: gamma", gamma, x);
  check_columns("batch_norm: beta", beta, x);
  if (!residual.empty()) check_like("batch_norm: residual", residual, x);
  return batch_norm_fused_on(dev, x, residual, gamma, beta, epsilon, relu);
}

/// Like batch_norm_apply of x and residual [.., C], but also returns the signs that the fused backward pass reads. The
/// result has no statistics. Returns nullopt if the device has no such kernel: use batch_norm_apply.
template <Device Dev>
[[nodiscard]] std::optional<BatchNormResult<Dev>> batch_norm_fused_apply(
    Dev& dev, InView<Dev> x, const BatchNormVectors<Dev>& vectors, InView<Dev> residual,
    bool relu) {
  check_norm<Dev>(x, vectors);
  if (!residual.empty()) check_like("batch_norm: residual", residual, x);
  return batch_norm_fused_apply_on(dev, x, vectors, residual, relu);
}

/// The fused backward pass of dy, x [.., C] with the statistics of these rows. The forward pass's signs [..] are empty
/// without `relu` or after an unfused forward pass. Returns nullopt if the caller must use the unfused ops.
template <Device Dev>
[[nodiscard]] std::optional<BatchNormGradients<Dev>> batch_norm_fused_backward(
    Dev& dev, InView<Dev> dy, InView<Dev> x, const BatchNormVectors<Dev>& vectors,
    InView<Dev> signs, bool relu, bool residual) {
  check_norm<Dev>(x, vectors);
  check_like("batch_norm: dy", dy, x);
  if (relu == signs.empty() || (residual && !relu)) return {};
  return batch_norm_fused_backward_on(dev, dy, x, vectors, signs, residual);
}

// The arithmetic of one channel, shared by all devices.

struct NormFromSums {
  constexpr NormFromSums(double sum, double sum_of_squares, double rows, double epsilon)
      : mean(sum / rows) {
    const double difference = sum_of_squares / rows - mean * mean;
    const double variance = difference < 0 ? 0 : difference;  // rounding may make it negative
    squared_deviations = variance * rows;
    inv_std = 1 / std::sqrt(variance + epsilon);
  }
  double mean, inv_std = 0, squared_deviations = 0;
};

}  // namespace dhp::detail
