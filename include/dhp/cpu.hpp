// dhp on the CPU: all of dhp with the kernels of device Cpu. It needs only the standard library. Kernels are templates,
// so a program compiles only the kernels that it calls.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/cached_attention.hpp>
#include <dhp/cpu/compression.hpp>
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/exact_sum.hpp>
#include <dhp/cpu/fingerprint.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/layer_norm.hpp>
#include <dhp/cpu/optimizer.hpp>
#include <dhp/cpu/pool.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cpu/rotary.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/cpu/segments.hpp>
#include <dhp/cpu/step.hpp>
#include <dhp/cpu/tree_sum.hpp>
#include <dhp/dhp.hpp>

namespace dhp::detail {

/// Never called. nn/layer.hpp looks for this declaration to see whether the kernels of the Cpu are included.
void kernels_are_included(const Cpu&);

}  // namespace dhp::detail
