// How kernels are written. A kernel is a struct that holds its arguments; its call operator is what one thread
// does, and sees its place in the grid through the Block that it is given. It is a constexpr template of
// plain C++, so nvcc makes GPU code of it (--expt-relaxed-constexpr), and any compiler can run it on the
// host, thread by thread: tests do that and compare every kernel with its twin in cpu/.
//
// A launch is launch(dev, grid, kernel), found by the device. Work on a device is ordered on one stream, so
// a kernel sees what kernels before it wrote. Kernels use no atomics: every sum has a fixed order.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/device/device.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace dhp {

/// A device whose ops are kernels of cuda/. most_shared_bytes: of memory that the threads of a block can share.
template <class Dev>
concept KernelDevice = Device<Dev> && requires(const Dev& dev) {
  requires Dev::runs_kernels;
  { dev.most_shared_bytes() } -> std::same_as<std::size_t>;
};

}  // namespace dhp

namespace dhp::cuda {

inline constexpr int warp_size = 32;

/// How many blocks of how many threads; shared_bytes: memory that the threads of a block share.
struct Grid {
  std::int64_t blocks = 1;
  int threads = 256;  ///< a multiple of warp_size, at most 1024
  std::size_t shared_bytes = 0;
};

/// Throws where the threads of a block would share more memory than the GPU has for them. what...: "... need".
template <class Dev, class... What>
void check_shared_memory(const Dev& dev, const Grid& grid, const What&... what) {
  check(grid.shared_bytes <= dev.most_shared_bytes(), what..., " ", grid.shared_bytes,
        " bytes of shared memory, and this GPU has ", dev.most_shared_bytes(),
        " for a block; a narrower type (fp32, say) needs less");
}

/// What a thread knows of its place. shared<T>() is the block's shared memory, 16-byte aligned, uninitialised.
/// sync() waits for all threads of the block, shuffle_xor exchanges with lane ^ mask of the warp: all threads
/// of the block, or of the warp, call them together.
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

/// `count` elements that are read and written by one instruction.
template <class T, int count = 16 / sizeof(T)>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};
template <class T>
inline constexpr int pack_size = 16 / sizeof(T);

/// Elements [first, first + n) as a pack; `from` is aligned to the pack's size.
template <int n, class T>
[[nodiscard]] constexpr Pack<T, n> load(const T* from) {
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
template <int n, class T>
constexpr void store(T* to, const Pack<T, n>& pack) {
  *reinterpret_cast<Pack<T, n>*>(to) = pack;
}
/// True when packs of n elements can be used: all pointers aligned and `stride` elements a multiple of n.
template <int n, class... T>
[[nodiscard]] bool packs_fit(std::int64_t stride, const T*... pointers) {
  return stride % n == 0 &&
         ((reinterpret_cast<std::uintptr_t>(pointers) % (sizeof(T) * n) == 0) && ...);
}

/// Blocks so that each thread has about one of `items`, at most `most` of them: kernels stride by the grid.
[[nodiscard]] inline Grid grid_for(std::int64_t items, int threads = 256,
                                   std::int64_t most = 132 * 16) {
  return {std::clamp<std::int64_t>((items + threads - 1) / threads, 1, most), threads, 0};
}

/// Of all threads of the grid: this one's number, and how many there are.
template <class B>
[[nodiscard]] constexpr std::int64_t grid_thread(const B& block) {
  return block.index() * block.threads() + block.thread();
}
template <class B>
[[nodiscard]] constexpr std::int64_t grid_threads(const B& block) {
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

/// op over the values of the warp's threads, the same in all of them. op is commutative.
template <class B, class A, class Op = Plus>
[[nodiscard]] constexpr A warp_reduce(B& block, A value, Op op = {}) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2)
    value = op(value, block.shuffle_xor(value, mask));
  return value;
}

/// Elements of shared memory that block_reduce needs.
inline constexpr int block_reduce_scratch = 32;

/// op over the values of the block's threads, the same in all of them. scratch: shared memory of
/// block_reduce_scratch elements, free before and after.
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

}  // namespace dhp::cuda
