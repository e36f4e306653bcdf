// Fused linear ops: a product with GELU or with its gradient, and a weight gradient with the bias gradient. A device
// without fused kernels runs the unfused ops. For 16-bit types a device may use GELU's tanh form (Hendrycks & Gimpel
// 2016, section 2). Its value deviates by up to 5e-4, its gradient by 9e-4: about the rounding error. f32 and f64 use
// the exact GELU.
#pragma once

#include <dhp/ops/activation.hpp>
#include <dhp/ops/gemm.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp::detail {
/// Fallbacks for devices without fused kernels.
[[nodiscard]] bool linear_gelu_fused_on(Device auto&, const auto&...) { return false; }
[[nodiscard]] bool gelu_linear_backward_fused_on(Device auto&, const auto&...) { return false; }
[[nodiscard]] bool linear_gradients_fused_on(Device auto&, const auto&...) { return false; }

/// before = x w^T + bias, y = GELU(before). x [R, K], w [N, K], bias [N], before and y [R, N] have one type.
template <Device Dev>
void linear_gelu_forward(Dev& dev, InView<Dev> x, InView<Dev> w, InView<Dev> bias,
                         OutView<Dev> before, OutView<Dev> y) {
  check(!bias.empty(), "linear_gelu needs a bias");
  check(y.shape() == before.shape() && y.dtype() == before.dtype(), "linear_gelu: the result ",
        y.shape(), " of ", y.dtype(), " does not match the input of GELU, ", before.shape(), " of ",
        before.dtype());
  check_gemm<Dev>(x, w, before, {.transpose_b = true}, bias);
  if (linear_gelu_fused_on(dev, x, w, bias, before, y)) return;
  gemm(dev, x, w, before, {.transpose_b = true}, bias);
  activation_forward(dev, Activation::gelu, before, y);
}

/// The gradient of y = GELU(before) w^T: dbefore = (dy w) GELU'(before). Also computes the gradient of the bias that
/// was added before GELU: dbias = beta dbias + the sum of dbefore over rows. dy [R, N], w [N, K], before and dbefore
/// [R, K] have one type; dbias is [K] in the accumulation type. With 16-bit types a device may first round the sums to
/// 16 bits; sums beyond f16's range become infinite.
template <Device Dev>
void gelu_linear_backward(Dev& dev, InView<Dev> dy, InView<Dev> w, InView<Dev> before,
                          OutView<Dev> dbefore, OutView<Dev> dbias, double beta) {
  check(before.shape() == dbefore.shape() && before.dtype() == dbefore.dtype(),
        "gelu_linear: the gradient ", dbefore.shape(), " of ", dbefore.dtype(),
        " does not match the input of GELU, ", before.shape(), " of ", before.dtype());
  check_gemm<Dev>(dy, w, dbefore, {}, {});
  check_columns("column_sums:", dbias, dbefore);
  if (!gelu_linear_backward_fused_on(dev, dy, w, before, dbefore)) {
    gemm(dev, dy, w, dbefore);
    activation_backward(dev, Activation::gelu, before, dbefore, dbefore);
  }
  column_sums(dev, dbefore, dbias, beta);
}

/// The gradients of weight and bias: dw = beta dw + dy^T x, dbias = beta dbias + the sum of dy over rows. dy [R, N] and
/// x [R, K] have one type; dw [N, K] and dbias [N] have the accumulation type. padded: dy may have further columns,
/// which are not read.
template <Device Dev>
void linear_gradients(Dev& dev, InView<Dev> dy, InView<Dev> x, OutView<Dev> dw, OutView<Dev> dbias,
                      double beta, bool padded = false) {
  const GemmOptions options{.transpose_a = true, .beta = beta, .padded = padded};
  check_gemm<Dev>(dy, x, dw, options, {});
  check_columns("column_sums:", dbias, dy, padded);
  if (linear_gradients_fused_on(dev, dy, x, dw, dbias, beta)) return;
  gemm(dev, dy, x, dw, options);
  column_sums(dev, dy, dbias, beta, padded);
}
}  // namespace dhp::detail
