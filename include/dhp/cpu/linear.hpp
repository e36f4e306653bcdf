// The Cpu has only the unfused linear ops: its products are bound by arithmetic.
#pragma once

#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/linear.hpp>

namespace dhp::detail {

bool linear_gelu_fused_on(Cpu&, const auto&...) { return false; }
bool gelu_linear_backward_fused_on(Cpu&, const auto&...) { return false; }
bool linear_gradients_fused_on(Cpu&, const auto&...) { return false; }

}  // namespace dhp::detail
