// gemm on a GPU: cuBLASLt, or dhp's kernel where cuBLASLt cannot (k = 0, unaligned addresses). f64
// and f32 keep their precision, unless the device allows TF32; 16-bit types use tensor cores with
// f32 sums.
#pragma once

#include <dhp/cuda/cublas_plan.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/fallback_gemm.hpp>
#include <dhp/cuda/prefill.hpp>

#include <concepts>

namespace dhp::cuda {

/// The call of c = alpha op(a) op(b) + beta c.
template <class Dev>
[[nodiscard]] CublasCall cublas_call(ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                                     const GemmOptions& options) {
  const auto m = c.shape()[0];
  const auto n = c.shape()[1];
  const auto k = a.shape()[options.transpose_a ? 0 : 1];
  auto call = cublas_call(column_major(options.transpose_a, options.transpose_b, m, n, k),
                          a.dtype(), c.dtype());
  call.left = b.bytes();
  call.right = a.bytes();
  call.c = c.bytes();
  call.alpha = options.alpha;
  call.beta = options.beta;
  return call;
}

/// Without bias; false if cuBLASLt cannot.
template <class Dev>
[[nodiscard]] bool cublas_multiply(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                                   const GemmOptions& options) {
  return dev.template cached<CublasPlans>().run(dev, cublas_call(a, b, c, options));
}

/// With a bias of c's type, added by the library if it can.
template <class Dev>
[[nodiscard]] bool cublas_multiply_add(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                                       const GemmOptions& options, ConstView<Dev> bias) {
  auto call = cublas_call(a, b, c, options);
  call.epilogue = CUBLASLT_EPILOGUE_BIAS;
  call.bias = const_cast<std::byte*>(bias.bytes());  // read only by this epilogue
  call.bias_type = bias.dtype();
  return dev.template cached<CublasPlans>().run(dev, call);
}

/// With any bias: first added to c in the accumulation type, so that c is rounded once.
template <class Dev>
[[nodiscard]] bool cublas_add_to_bias(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                                      GemmOptions options, ConstView<Dev> bias) {
  const auto wide = accumulation_type(a.dtype());
  auto call_options = options;
  call_options.beta = 1;
  if (c.dtype() == wide) {
    if (!dev.template cached<CublasPlans>().can(dev, cublas_call(a, b, c, call_options)))
      return false;
    prefill(dev, options.beta, bias, c);
    return cublas_multiply(dev, a, b, c, call_options);
  }
  Tensor<Dev> sum(dev, wide, c.shape());
  if (options.beta != 0) cast_on(dev, ConstView<Dev>(c), sum.mut());
  if (!dev.template cached<CublasPlans>().can(dev, cublas_call(a, b, sum.mut(), call_options)))
    return false;
  prefill(dev, options.beta, bias, sum.mut());
  if (!cublas_multiply(dev, a, b, sum.mut(), call_options)) return false;
  cast_on(dev, sum.view(), c);
  return true;
}

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
  requires std::same_as<Dev, Cuda>
void gemm_on(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c, const GemmOptions& options,
             ConstView<Dev> bias) {
  if (c.count() == 0) return;
  const bool has_depth = a.count() > 0 && b.count() > 0;
  if (has_depth && bias.empty() && cuda::cublas_multiply(dev, a, b, c, options)) return;
  if (has_depth && !bias.empty()) {
    if (bias.dtype() == c.dtype() && cuda::cublas_multiply_add(dev, a, b, c, options, bias)) return;
    if (cuda::cublas_add_to_bias(dev, a, b, c, options, bias)) return;
  }
  cuda::fallback_gemm(dev, a, b, c, options, bias);
}

}  // namespace dhp
