// The kernels around calls of CUDA's libraries, which only builds for GPUs have. cmake/emulated_ops.cmake finds the
// kernels of all other ops in the headers.
#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/launch.cuh>
#include <dhp/cuda/map.hpp>

namespace dhp {

template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::DescribeSamples&);
template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::StatisticsForCudnn&);
template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::StatisticsFromCudnn&);
template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::ClearPadding<double>&);
template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::ClearPadding<float>&);
template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::ClearPadding<bf16>&);
template void launch(Cuda&, const detail::cuda::Grid&, const detail::cuda::ClearPadding<f16>&);
template void detail::cuda::map(Cuda&, std::int64_t, detail::cuda::SquaredDeviations, float*,
                                const float*);

}  // namespace dhp
