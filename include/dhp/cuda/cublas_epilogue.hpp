// The fused linear ops of ops/linear.hpp on Cuda, as cuBLASLt epilogues; each saves a pass over the activations. If
// cuBLASLt cannot run an op, the function returns false and writes nothing. cuBLASLt has only the tanh form of GELU,
// which f32 must not use, so GELU in f32 stays unfused. Deterministic devices may use epilogues, because a size always
// gets the same algorithm and cuBLAS repeats its bits on GPUs of one model ("cuBLAS", Results Reproducibility).
#pragma once

#include <dhp/cuda/cublas_gemm.hpp>
#include <dhp/ops/linear.hpp>

namespace dhp::detail::cuda {

// Each of these returns the call of an op, or nothing if the tensors do not fit it.

/// Computes y = GELU(x w^T + bias) and before = x w^T + bias. x [R, K], w [N, K], bias [N], y and before [R, N] have
/// one 16-bit type; N is a multiple of 8.
template <class Dev>
[[nodiscard]] std::optional<CublasCall> linear_gelu(ConstView<Dev> x, ConstView<Dev> w,
                                                    ConstView<Dev> bias, View<Dev> before,
                                                    View<Dev> y) {
  if (size_of(x.dtype()) != 2 || y.columns() % 8 != 0 || y.count() == 0 || x.count() == 0 ||
      bias.dtype() != y.dtype() || before.dtype() != y.dtype() || before.shape() != y.shape())
    return {};
  auto result = cublas_call(x, w, y, {.transpose_b = true});
  result.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  result.bias = const_cast<std::byte*>(bias.bytes());
  result.bias_type = bias.dtype();
  result.aux = before.bytes();
  return result;
}

/// Computes dbefore = (dy w) GELU'(before). dy [R, N], w [N, K], before and dbefore [R, K] have one 16-bit type; K is a
/// multiple of 8. cuBLASLt could also sum dbefore's columns, but took 570 us on an H100; column_sums takes 56 us.
template <class Dev>
[[nodiscard]] std::optional<CublasCall> linear_gelu_gradient(ConstView<Dev> dy, ConstView<Dev> w,
                                                             ConstView<Dev> before,
                                                             View<Dev> dbefore) {
  if (size_of(dy.dtype()) != 2 || dbefore.columns() % 8 != 0 || dbefore.count() == 0 ||
      dy.count() == 0 || before.dtype() != dbefore.dtype() || before.shape() != dbefore.shape())
    return {};
  auto result = cublas_call(dy, w, dbefore, GemmOptions{});
  result.epilogue = CUBLASLT_EPILOGUE_DGELU;
  result.aux = const_cast<std::byte*>(before.bytes());
  return result;
}

/// Computes dw = dy^T x + beta dw and dbias = the sum of dy over rows (overwritten for every beta). dy [R, N], x [R,
/// K], dw [N, K]; dbias [N] has dw's type.
template <class Dev>
[[nodiscard]] std::optional<CublasCall> weight_and_bias_gradient(ConstView<Dev> dy,
                                                                 ConstView<Dev> x, View<Dev> dw,
                                                                 View<Dev> dbias, double beta) {
  if (dbias.dtype() != dw.dtype() || dw.count() == 0 || dy.count() == 0) return {};
  auto result = cublas_call(dy, x, dw, {.transpose_a = true, .beta = beta});
  result.epilogue = CUBLASLT_EPILOGUE_BGRADB;  // dy is the second operand
  result.bias = dbias.bytes();
  result.bias_type = dbias.dtype();
  return result;
}

/// Returns false if there is no call or cuBLASLt cannot run it.
[[nodiscard]] bool run_fused(auto& dev, const std::optional<CublasCall>& call) {
  return call && dev.template cached<CublasPlans>().run(dev, *call);
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <CudaItself Dev>
bool linear_gelu_fused_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w, ConstView<Dev> bias,
                          View<Dev> before, View<Dev> y) {
  return cuda::run_fused(dev, cuda::linear_gelu(x, w, bias, before, y));
}

template <CudaItself Dev>
bool gelu_linear_backward_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w,
                                   ConstView<Dev> before, View<Dev> dbefore) {
  return cuda::run_fused(dev, cuda::linear_gelu_gradient(dy, w, before, dbefore));
}

template <CudaItself Dev>
bool linear_gradients_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, View<Dev> dw,
                               View<Dev> dbias, double beta) {
  if (beta == 0) return cuda::run_fused(dev, cuda::weight_and_bias_gradient(dy, x, dw, dbias, 0));
  Tensor<Dev> sums(dev, dbias.dtype(), dbias.shape());
  if (!cuda::run_fused(dev, cuda::weight_and_bias_gradient(dy, x, dw, sums.mut(), beta)))
    return false;
  cuda::add_fresh(dev, sums.view(), beta, dbias);
  return true;
}

}  // namespace dhp::detail
