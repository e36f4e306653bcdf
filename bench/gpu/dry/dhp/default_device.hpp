// The default device of the dry trainers: Cuda, whose kernels are counted instead of launched. This folder precedes the
// real header in the search path, so the C++ compiler compiles the trainers' own sources with this one.
#pragma once

#include <bench/gpu/dry/traffic.hpp>
#include <dhp/cuda/cublas_epilogue.hpp>
#include <dhp/cuda/cublas_gemm.hpp>
#include <dhp/cuda/cudnn_attention.hpp>
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/cudnn_conv2d.hpp>
#include <dhp/cuda/kernels.hpp>
#include <dhp/cuda/library_report.hpp>
#include <dhp/dhp.hpp>

#include <typeinfo>

namespace dhp {

template <>
inline constexpr bool detail::has_data<Cuda> = false;  // no initial weights are drawn

template <class Kernel>
void launch(Cuda& dev, const detail::cuda::Grid& grid, const Kernel& kernel) {
  static_assert(sizeof(Kernel) <= 4000, "arguments of a kernel must fit in 4 KB");
  detail::cuda::check_grid<Kernel>(grid);
  detail::cuda::check_shared_memory(dev, grid, "the threads of a kernel's block need");
  dry::ledger().add(dry::kernel_name(typeid(Kernel).name()), dry::bytes_of(kernel),
                    dry::flop_of(kernel));
}

using DefaultDevice = Cuda;

}  // namespace dhp
