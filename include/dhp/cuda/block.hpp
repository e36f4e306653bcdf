// How kernels are written. A kernel is a struct of its arguments; its call operator is the code of one thread, which
// gets its grid position from a Block. This is plain constexpr C++: nvcc compiles it for the GPU
// (--expt-relaxed-constexpr), and tests run it on the host, thread by thread, and compare it with the kernels of cpu/.
// The device's type selects launch(dev, grid, kernel). The device's stream orders all work, so a kernel sees the writes
// of earlier kernels. Kernels use no atomics: every sum has a fixed order.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/device/device.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dhp {

class Cuda;

namespace detail {

/// A device that runs the kernels of cuda/. max_shared_bytes() is the most shared memory of a block; multiprocessors()
/// is the number of units that run blocks at the same time.
template <class Dev>
concept KernelDevice = Device<Dev> && requires(const Dev& dev) {
  requires Dev::runs_kernels;
  { dev.max_shared_bytes() } -> std::same_as<std::size_t>;
  { dev.multiprocessors() } -> std::same_as<int>;
};
/// Cuda itself, and not a test's device, which has kernels but no libraries.
template <class Dev>
concept CudaItself = KernelDevice<Dev> && std::same_as<Dev, Cuda>;

}  // namespace detail

}  // namespace dhp

namespace dhp::detail::cuda {

inline constexpr int warp_size = 32;

/// Launch dimensions; shared_bytes is the shared memory of one block.
struct Grid {
  std::int64_t blocks = 1;
  int threads = 256;  ///< a multiple of warp_size, at most the kernel's max_threads
  std::size_t shared_bytes = 0;
};

/// Returns the most threads of a block of Kernel: Kernel::max_threads, or 256. Registers are limited accordingly.
template <class Kernel>
[[nodiscard]] constexpr int max_threads() {
  if constexpr (requires { Kernel::max_threads; }) return Kernel::max_threads;
  else return 256;
}

/// Returns the fewest blocks of Kernel that a multiprocessor must be able to hold: Kernel::min_blocks, or 0 for any
/// number. More blocks leave fewer registers for each thread.
template <class Kernel>
[[nodiscard]] constexpr int min_blocks() {
  if constexpr (requires { Kernel::min_blocks; }) return Kernel::min_blocks;
  else return 0;
}

/// Throws Error if Kernel cannot run on this grid.
template <class Kernel>
void check_grid(const Grid& grid) {
  check(grid.blocks >= 1 && grid.blocks <= 0x7fffffff && grid.threads >= 1 &&
            grid.threads % warp_size == 0 && grid.threads <= max_threads<Kernel>(),
        "a kernel cannot have ", grid.blocks, " blocks of ", grid.threads,
        " threads; this one has up to ", max_threads<Kernel>(),
        " threads per block, see its max_threads");
}

/// Throws Error if a block needs more shared memory than the GPU has. what...: the start of the message, up to "need".
void check_shared_memory(const auto& dev, const Grid& grid, const auto&... what) {
  check(grid.shared_bytes <= dev.max_shared_bytes(), what..., " ", grid.shared_bytes,
        " bytes of shared memory, and this GPU has ", dev.max_shared_bytes(),
        " for a block; a narrower type (fp32, say) needs less");
}

/// A thread's position in the grid. shared<T>() returns the block's shared memory, 16-byte aligned and uninitialized.
/// sync() is the barrier of the block's threads; all of them must call it. shuffle_xor exchanges with lane ^ mask; all
/// threads of the warp must call it. Matrix products of a warp: warp_product.hpp.
template <class B>
concept Block = requires(B& block, float value) {
  { block.index() } -> std::convertible_to<std::int64_t>;
  { block.blocks() } -> std::convertible_to<std::int64_t>;
  { block.thread() } -> std::convertible_to<int>;
  { block.threads() } -> std::convertible_to<int>;
  { block.template shared<float>() } -> std::same_as<float*>;
  { block.shuffle_xor(value, 1) } -> std::same_as<float>;
  block.sync();
};

/// `count` elements that one instruction loads or stores.
template <class T, int count = 16 / sizeof(T)>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};
template <class T>
inline constexpr int pack_size = 16 / sizeof(T);

/// Loads n elements as a pack; `from` must be aligned to the pack's size.
template <int n, class T>
[[nodiscard]] constexpr Pack<T, n> load(const T* from) {
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <int n, class T>
constexpr void store(T* to, const Pack<T, n>& pack) {
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}
template <class T, class A, int n>
constexpr void store_rounded(T* to, const Pack<A, n>& pack) {
  Pack<T, n> out;
  for (int at = 0; at < n; ++at) out.at[at] = static_cast<T>(pack.at[at]);
  store<n>(to, out);
}
/// Returns whether packs of n elements fit: pointers are aligned, and `stride` is a multiple of n.
template <int n, class... T>
[[nodiscard]] bool packs_fit(std::int64_t stride, const T*... pointers) {
  return stride % n == 0 &&
         ((reinterpret_cast<std::uintptr_t>(pointers) % (sizeof(T) * n) == 0) && ...);
}

/// Calls body(integral_constant<int, n>) with the first width n for which packs_fit() is true. The last must be 1.
template <int width, int... narrower, class Body, class... T>
void with_width(std::int64_t stride, const Body& body, const T*... pointers) {
  if constexpr (sizeof...(narrower) > 0)
    if (!packs_fit<width>(stride, pointers...))
      return with_width<narrower...>(stride, body, pointers...);
  body(std::integral_constant<int, width>());
}

/// Returns the most blocks of a grid-stride loop: enough to keep every multiprocessor busy until the end.
[[nodiscard]] std::int64_t max_blocks(const auto& dev) {
  return std::int64_t{dev.multiprocessors()} * 16;
}
/// Returns a grid with one item for each thread, but at most max_blocks: kernels use grid-stride loops.
[[nodiscard]] Grid grid_for(const auto& dev, std::int64_t items, int threads = 256) {
  return {std::clamp<std::int64_t>((items + threads - 1) / threads, 1, max_blocks(dev)), threads,
          0};
}

/// The most partial sums of one sum. This number determines the order of additions and thus the bits of the sum, so it
/// is the same on all GPUs.
inline constexpr std::int64_t max_sum_parts = 1056;

/// Returns this thread's index in the grid; grid_threads() returns the grid's number of threads.
[[nodiscard]] constexpr std::int64_t grid_thread(const auto& block) {
  return block.index() * block.threads() + block.thread();
}
[[nodiscard]] constexpr std::int64_t grid_threads(const auto& block) {
  return block.blocks() * block.threads();
}

struct Plus {
  template <class A>
  constexpr A operator()(A a, A b) const {
    return a + b;
  }
};
struct Largest {
  template <class A>
  constexpr A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};

/// Reduces over the warp; every thread gets the result. op must be commutative.
template <class B, class A, class Op = Plus>
[[nodiscard]] constexpr A warp_reduce(B& block, A value, Op op = {}) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2)
    value = op(value, block.shuffle_xor(value, mask));
  return value;
}

/// Elements of shared memory that block_reduce needs.
inline constexpr int block_reduce_scratch = 32;

/// Reduces over the block; every thread gets the result. scratch: shared memory of block_reduce_scratch elements,
/// reusable on return.
template <class B, class A, class Op = Plus>
[[nodiscard]] constexpr A block_reduce(B& block, A value, A* scratch, Op op = {}) {
  value = warp_reduce(block, value, op);
  const int warps = block.threads() / warp_size;
  if (warps == 1) return value;
  if (block.thread() % warp_size == 0) scratch[block.thread() / warp_size] = value;
  block.sync();
  A total = scratch[0];
  for (int warp = 1; warp < warps; ++warp) total = op(total, scratch[warp]);
  block.sync();
  return total;
}

}  // namespace dhp::detail::cuda
