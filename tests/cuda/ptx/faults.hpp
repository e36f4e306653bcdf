// Kernels that have one fault each or, with `faulty` false, none.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/cuda/warp_product.hpp>

#include <array>
#include <cstdint>

namespace tests::faults {

using dhp::detail::cuda::grid_thread;

#ifdef __CUDA_ARCH__
inline constexpr bool on_gpu = true;
#else
inline constexpr bool on_gpu = false;
#endif

/// Two blocks of 64 threads; a block has shared memory for 64 floats. y has `words` floats.
inline constexpr int words = 1024;
inline constexpr dhp::detail::cuda::Grid grid{2, 64, 64 * sizeof(float)};

template <bool faulty>
struct MissingBarrier {
  float* y;
  constexpr void operator()(auto& block) const {
    auto* const shared = block.template shared<float>();
    shared[block.thread()] = 1;
    if constexpr (!faulty) block.sync();
    y[grid_thread(block)] = shared[(block.thread() + 1) % block.threads()];
  }
};
template <bool faulty>
struct WriteAfterRead {
  float* y;
  constexpr void operator()(auto& block) const {
    auto* const shared = block.template shared<float>();
    shared[block.thread()] = 1;
    block.sync();
    y[grid_thread(block)] = shared[(block.thread() + 1) % block.threads()];
    if constexpr (!faulty) block.sync();
    shared[block.thread()] = 2;
  }
};
/// Every block writes the first element.
template <bool faulty>
struct TwoBlocksWrite {
  float* y;
  constexpr void operator()(auto& block) const {
    if (block.thread() == 0) y[faulty ? 0 : block.index()] = static_cast<float>(block.index());
  }
};
/// A block reads the element that the next block writes.
template <bool faulty>
struct ReadsNextBlock {
  float* y;
  constexpr void operator()(auto& block) const {
    if (block.thread() == 0) y[block.index()] = y[block.index() + (faulty ? 1 : 0)];
  }
};
template <bool faulty>
struct ShuffleOfHalf {
  float* y;
  constexpr void operator()(auto& block) const {
    auto value = static_cast<float>(block.thread());
#ifdef __CUDA_ARCH__
    value += __shfl_xor_sync(faulty ? 0xffffu : 0xffffffffu, value, 1);
#else
    value += block.shuffle_xor(value, 1);
#endif
    y[grid_thread(block)] = value;
  }
};
template <bool faulty>
struct ShuffleInBranch {
  float* y;
  constexpr void operator()(auto& block) const {
    auto value = y[grid_thread(block)];
    if (!faulty || value > 0 || block.thread() % 2 == 0) value = block.shuffle_xor(value, 2);
    y[grid_thread(block)] = value;
  }
};
template <bool faulty>
struct BarrierInBranch {
  float* y;
  constexpr void operator()(auto& block) const {
    if (!faulty || block.thread() < 40) block.sync();
    y[grid_thread(block)] = 1;
    block.sync();
  }
};
template <bool faulty>
struct ProductInBranch {
  float* y;
  constexpr void operator()(auto& block) const {
    float sums[4] = {};
    if (!faulty || y[grid_thread(block)] > 0 || block.thread() % 2 == 0)
      block.template multiply<dhp::bf16>(sums, {}, 0, 0);
    y[grid_thread(block)] = sums[0];
  }
};
template <bool faulty>
struct MisalignedMatrix {
  float* y;
  constexpr void operator()(auto& block) const {
    auto* const shared = block.template shared<dhp::bf16>();
    shared[block.thread()] = dhp::bf16(1.0f);
    block.sync();
    const auto* const row = shared + block.thread() % 8 * 8 + (faulty ? 4 : 0);
    y[grid_thread(block)] = static_cast<float>(block.template load_matrices<false>(row).at[0]);
  }
};
template <bool faulty>
struct MisalignedPack {
  float* y;
  constexpr void operator()(auto& block) const {
    auto* const mine = y + 4 * grid_thread(block) + (faulty && block.thread() > 0 ? 1 : 0);
    dhp::detail::cuda::store(mine, dhp::detail::cuda::Pack<float, 4>{{1, 2, 3, 4}});
  }
};
/// Reads elements of a matrix of 2^33 elements, from `first` on.
template <bool faulty>
struct IndexOf32Bits {
  float* y;
  std::int64_t first = std::int64_t{1} << 32;
  std::uint32_t columns = 1u << 16;
  constexpr void operator()(auto& block) const {
    const auto row = (1u << 16) + static_cast<std::uint32_t>(block.index());
    const auto begins = faulty ? row * columns : std::int64_t{row} * columns;
    y[(begins - first) / 256 + block.thread()] = 1;
  }
};
template <bool faulty>
struct BeyondSharedMemory {
  float* y;
  constexpr void operator()(auto& block) const {
    auto* const shared = block.template shared<float>();
    shared[block.thread() + (faulty ? 1 : 0)] = 1;
    y[grid_thread(block)] = shared[block.thread() + (faulty ? 1 : 0)];
  }
};
template <bool faulty>
struct OtherArguments {
  float* y;
  std::array<int, faulty && on_gpu ? 3 : 1> filler{};
  int count = words;
  constexpr void operator()(auto& block) const {
    if (grid_thread(block) < count) y[grid_thread(block)] = 1;
  }
};
/// Writes 1 + thread / 1000 to y as bf16 bits; the faulty kernel rounds towards zero.
template <bool faulty>
struct RoundedByAssembler {
  float* y;
  constexpr void operator()(auto& block) const {
    const float x = 1 + static_cast<float>(block.thread()) / 1000;
    auto bits = dhp::bf16(x).bits;
#ifdef __CUDA_ARCH__
    if constexpr (faulty) asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#endif
    y[grid_thread(block)] = static_cast<float>(bits);
  }
};

}  // namespace tests::faults
