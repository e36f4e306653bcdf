// Launching kernels on a GPU.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/device/cuda.hpp>

namespace dhp::detail::cuda {

/// The Block of a GPU thread.
class GpuBlock {
 public:
  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ std::int64_t blocks() const { return gridDim.x; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  template <class A>
  __device__ A shuffle_xor(A value, int mask) const {
    return __shfl_xor_sync(0xffffffffu, value, mask);
  }
  template <class A>
  __device__ A* shared() const {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    return reinterpret_cast<A*>(shared_memory);
  }
};

template <class Kernel>
__global__ void __launch_bounds__(most_threads<Kernel>())
    run_kernel(const __grid_constant__ Kernel kernel) {
  GpuBlock block;
  kernel(block);
}

}  // namespace dhp::detail::cuda

namespace dhp {

/// Issues a kernel on the device's stream. Throws CudaError if the launch fails.
template <class Kernel>
void launch(Cuda& dev, const detail::cuda::Grid& grid, const Kernel& kernel) {
  static_assert(sizeof(Kernel) <= 4000, "arguments of a kernel must fit in 4 KB");
  detail::cuda::check_grid<Kernel>(grid);
  detail::cuda::check_shared_memory(dev, grid, "the threads of a kernel's block need");
  const auto function = &detail::cuda::run_kernel<Kernel>;
  constexpr std::size_t without_asking = 48 << 10;
  if (grid.shared_bytes > without_asking)
    check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(grid.shared_bytes)),
               "cudaFuncSetAttribute (shared memory of a kernel)");
  function<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads),
             grid.shared_bytes, dev.stream()>>>(kernel);
  const auto code = cudaGetLastError();
  check(code != cudaErrorNoKernelImageForDevice, "this program has no code for GPU ", dev.number(),
        " (", dev.properties().name, ", compute capability ", dev.properties().major, ".",
        dev.properties().minor,
        "): configure it with -DCMAKE_CUDA_ARCHITECTURES=", dev.properties().major,
        dev.properties().minor);
  check_cuda(code, "the start of a kernel");
}

}  // namespace dhp
