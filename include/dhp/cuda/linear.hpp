// dhp's kernels have only the unfused linear ops; cublas_epilogue.hpp has the fused ones.
#pragma once

#include <dhp/cuda/activation.hpp>
#include <dhp/cuda/fallback_gemm.hpp>
#include <dhp/cuda/reduce.hpp>
#include <dhp/ops/linear.hpp>

namespace dhp::detail {

template <KernelDevice Dev>
bool linear_gelu_fused_on(Dev&, ConstView<Dev>, ConstView<Dev>, ConstView<Dev>, View<Dev>,
                          View<Dev>) {
  return false;
}
template <KernelDevice Dev>
bool gelu_linear_backward_fused_on(Dev&, ConstView<Dev>, ConstView<Dev>, ConstView<Dev>, View<Dev>,
                                   View<Dev>, double) {
  return false;
}
template <KernelDevice Dev>
bool linear_gradients_fused_on(Dev&, ConstView<Dev>, ConstView<Dev>, View<Dev>, View<Dev>, double) {
  return false;
}

}  // namespace dhp::detail
