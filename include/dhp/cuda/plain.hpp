// The ops that dhp's own kernels do where a library cannot; declared here for those who hand over to them, defined
// in plain_gemm.hpp, plain_conv2d.hpp and plain_attention.hpp.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/conv2d.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp::cuda {

template <KernelDevice Dev>
void plain_gemm(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c,
                const GemmOptions& options, ConstView<Dev> bias);

template <KernelDevice Dev>
void plain_conv2d_forward(Dev& dev, ConstView<Dev> x, ConstView<Dev> w, Conv2dGeometry geometry,
                          View<Dev> y);
template <KernelDevice Dev>
void plain_conv2d_backward_data(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w,
                                Conv2dGeometry geometry, View<Dev> dx);
template <KernelDevice Dev>
void plain_conv2d_backward_filter(Dev& dev, ConstView<Dev> x, ConstView<Dev> dy,
                                  Conv2dGeometry geometry, View<Dev> dw, double beta);

template <KernelDevice Dev>
void plain_attention_forward(Dev& dev, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                             const Sequences<Dev>& sequences, const AttentionOptions& options,
                             View<Dev> y, View<Dev> logsumexp);
template <KernelDevice Dev>
void plain_attention_backward(Dev& dev, ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k,
                              ConstView<Dev> v, ConstView<Dev> y, ConstView<Dev> logsumexp,
                              const Sequences<Dev>& sequences, const AttentionOptions& options,
                              View<Dev> dq, View<Dev> dk, View<Dev> dv);

}  // namespace dhp::cuda
