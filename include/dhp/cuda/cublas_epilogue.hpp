// Matrix products that do more before they store: GELU with what its gradient needs, the gradient of GELU with the
// gradient of the bias before it, the gradient of a bias beside that of the weights. Each saves a pass over
// the activations, and is for layers that ask first: every function returns false, having written nothing, where
// cuBLASLt cannot; ..._supported tells without running. cuBLASLt's GELU is the form with tanh (Hendrycks & Gimpel
// 2016, section 2), up to 5e-4 from the exact one of ops/activation.hpp.
#pragma once

#include <dhp/cuda/cublas_gemm.hpp>

namespace dhp::cuda {

/// y = GELU(x w^T + bias), before = x w^T + bias. x [R, K], w [N, K], bias [N], y and before [R, N] of one type
/// of 16 bits; N a multiple of 8.
template <class Dev>
struct LinearGelu {
  ConstView<Dev> x, w, bias;
  View<Dev> y, before;

  [[nodiscard]] CublasCall call() const {
    auto made = cublas_call(x, w, y, {.transpose_b = true});
    made.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    made.bias = const_cast<std::byte*>(bias.bytes());
    made.bias_type = bias.dtype();
    made.aux = before.bytes();
    return made;
  }
  [[nodiscard]] bool fits() const {
    return size_of(x.dtype()) == 2 && y.columns() % 8 == 0 && y.count() > 0 && x.count() > 0 &&
           bias.dtype() == y.dtype() && before.dtype() == y.dtype() && before.shape() == y.shape();
  }
};

/// dbefore = (dy w) GELU'(before), dbias = the sum of dbefore over the rows. dy [R, N], w [N, K], before and
/// dbefore [R, K], dbias [K], all of one type of 16 bits; K a multiple of 8.
template <class Dev>
struct LinearGeluGradient {
  ConstView<Dev> dy, w, before;
  View<Dev> dbefore, dbias;

  [[nodiscard]] CublasCall call() const {
    auto made = cublas_call(dy, w, dbefore, GemmOptions{});
    made.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    made.bias = dbias.bytes();
    made.bias_type = dbias.dtype();
    made.aux = const_cast<std::byte*>(before.bytes());
    return made;
  }
  [[nodiscard]] bool fits() const {
    return size_of(dy.dtype()) == 2 && dbefore.columns() % 8 == 0 && dbefore.count() > 0 &&
           dy.count() > 0 && dbias.dtype() == dbefore.dtype() &&
           before.dtype() == dbefore.dtype() && before.shape() == dbefore.shape();
  }
};

/// dw = dy^T x + beta dw, dbias = the sum of dy over the rows (it is written, whatever beta). dy [R, N],
/// x [R, K], dw [N, K], dbias [N] of dw's type.
template <class Dev>
struct WeightAndBiasGradient {
  ConstView<Dev> dy, x;
  View<Dev> dw, dbias;
  double beta = 0;

  [[nodiscard]] CublasCall call() const {
    auto made = cublas_call(dy, x, dw, {.transpose_a = true, .beta = beta});
    made.epilogue = CUBLASLT_EPILOGUE_BGRADB;  // dy comes second there
    made.bias = dbias.bytes();
    made.bias_type = dbias.dtype();
    return made;
  }
  [[nodiscard]] bool fits() const {
    return dbias.dtype() == dw.dtype() && dw.count() > 0 && dy.count() > 0;
  }
};

/// Any of the above.
template <class Dev, class Fused>
[[nodiscard]] bool fused_supported(Dev& dev, const Fused& fused) {
  return fused.fits() && dev.template kept<CublasPlans>().can(dev, fused.call());
}
template <class Dev, class Fused>
[[nodiscard]] bool run_fused(Dev& dev, const Fused& fused) {
  return fused.fits() && dev.template kept<CublasPlans>().run(dev, fused.call());
}

}  // namespace dhp::cuda
