// gemm on a GPU, by cuBLASLt; dhp's kernel runs the products that cuBLASLt cannot (k = 0, unaligned addresses). f32
// inputs are rounded only if the device allows TF32; 16-bit types are summed in f32.
#pragma once

#include <dhp/cuda/cublas_plan.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/fallback_gemm.hpp>

namespace dhp::detail::cuda {

/// Describes cuBLASLt's call for c = alpha op(a) op(b) + beta c.
template <class Dev>
[[nodiscard]] CublasCall cublas_call(ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                                     const GemmOptions& options) {
  const auto [m, n, k] = gemm_size<Dev>(b, c, options);
  auto product = column_major(options.transpose_a, options.transpose_b, m, n, k);
  product.right.stride = a.shape()[1];
  product.c.stride = c.shape()[1];
  return {.product = product,
          .in = a.dtype(),
          .out = c.dtype(),
          .left = b.bytes(),
          .right = a.bytes(),
          .c = c.bytes(),
          .alpha = options.alpha,
          .beta = options.beta};
}

/// For a bias of any type: sets c, or a copy of c in the accumulation type, to beta c + bias, then adds the product, so
/// c is rounded once. Keeps padding. Returns false and leaves c unchanged if cuBLASLt proposes no algorithm.
template <class Dev>
[[nodiscard]] bool cublas_add_to_bias(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                                      const GemmOptions& options, ConstView<Dev> bias) {
  auto& plans = dev.template cached<CublasPlans>();
  const bool is_wide = c.dtype() == accumulation_type(a.dtype());
  Tensor<Dev> wide;
  if (!is_wide) wide = Tensor<Dev>(dev, accumulation_type(a.dtype()), c.shape());
  const View<Dev> sum = is_wide ? c : wide.mut();
  auto adding = options;
  adding.beta = 1;
  const auto call = cublas_call(a, b, sum, adding);
  if (!plans.can(dev, call)) return false;
  if (!is_wide && (options.beta != 0 || options.padded)) cast_on(dev, ConstView<Dev>(c), sum);
  const auto [m, n, k] = gemm_size<Dev>(b, c, options);
  gemm_on(dev, ConstView<Dev>(a.bytes(), a.dtype(), {m, 0}),
          ConstView<Dev>(b.bytes(), b.dtype(), {0, n}), sum,
          {.beta = options.beta, .padded = options.padded}, bias);
  if (!plans.run(dev, call)) gemm_on(dev, a, b, sum, adding, ConstView<Dev>());
  if (!is_wide) cast_on(dev, ConstView<Dev>(sum), c);
  return true;
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <CudaItself Dev>
bool gemm_library_on(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                     const GemmOptions& options, ConstView<Dev> bias) {
  if (a.count() == 0 || b.count() == 0 || c.count() == 0) return false;
  auto call = cuda::cublas_call(a, b, c, options);
  if (!bias.empty()) {
    call.epilogue = CUBLASLT_EPILOGUE_BIAS;
    call.bias = const_cast<std::byte*>(bias.bytes());  // this epilogue only reads the bias
    call.bias_type = bias.dtype();
  }
  const bool fits = bias.empty() || bias.dtype() == c.dtype();
  if (fits && dev.template cached<cuda::CublasPlans>().run(dev, call)) return true;
  return !bias.empty() && cuda::cublas_add_to_bias(dev, a, b, c, options, bias);
}

}  // namespace dhp::detail
