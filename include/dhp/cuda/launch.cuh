// Launches kernels on a GPU. GpuBlock is the Block that they get.
#pragma once

#include <dhp/cuda/warp_product.hpp>
#include <dhp/device/cuda.hpp>

namespace dhp::detail::cuda {

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
  template <bool transposes, class T>
  __device__ WarpWords load_matrices(const T* row) const {
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    WarpWords to;
    if constexpr (transposes)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to.at[0]), "=r"(to.at[1]), "=r"(to.at[2]), "=r"(to.at[3])
                   : "r"(from)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to.at[0]), "=r"(to.at[1]), "=r"(to.at[2]), "=r"(to.at[3])
                   : "r"(from)
                   : "memory");
    return to;
  }
  template <class T>
  __device__ void multiply(float (&sums)[4], const WarpWords& left, std::uint32_t first,
                           std::uint32_t second) const {
    const auto& a = left.at;
    if constexpr (std::is_same_v<T, bf16>)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(second));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(first), "r"(second));
  }
  template <class A>
  __device__ A* shared() const {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    return reinterpret_cast<A*>(shared_memory);
  }
};

template <class Kernel>
__global__ void __launch_bounds__(max_threads<Kernel>(), min_blocks<Kernel>())
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
