#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/fingerprint.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>

namespace dhp::detail::cuda {

/// parts[block] = the block's part of the sum.
template <class Bits>
struct FingerprintParts {
  std::int64_t count, first;
  const Bits* bits;
  std::uint64_t* parts;

  constexpr void operator()(auto& block) const {
    std::uint64_t total = 0;
    for (auto at = grid_thread(block); at < count; at += grid_threads(block))
      total += bits[at] * fingerprint_factor(first + at);
    total = block_reduce(block, total, block.template shared<std::uint64_t>());
    if (block.thread() == 0) parts[block.index()] = total;
  }
};

/// sum += times * the sum of parts, in one block.
struct FingerprintOfParts {
  std::int64_t count;
  const std::uint64_t* parts;
  std::uint64_t times;
  std::uint64_t* sum;

  constexpr void operator()(auto& block) const {
    std::uint64_t total = 0;
    for (std::int64_t at = block.thread(); at < count; at += block.threads()) total += parts[at];
    total = block_reduce(block, total, block.template shared<std::uint64_t>());
    if (block.thread() == 0) *sum += times * total;
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void fingerprint_on(Dev& dev, ConstView<Dev> x, std::int64_t first, View<Dev> sum,
                    std::int64_t times) {
  detail::visit_bits(x, [&]<class Bits>(const Bits* bits) {
    constexpr std::size_t shared = sizeof(std::uint64_t) * cuda::block_reduce_scratch;
    const cuda::Grid grid{std::clamp<std::int64_t>(x.count() / 1024, 1, cuda::most_sum_parts), 256,
                          shared};
    Tensor<Dev> scratch(dev, DType::i64, {grid.blocks});
    auto* const parts = reinterpret_cast<std::uint64_t*>(scratch.mut().bytes());
    launch(dev, grid, cuda::FingerprintParts<Bits>{x.count(), first, bits, parts});
    launch(dev, cuda::Grid{1, 256, shared},
           cuda::FingerprintOfParts{grid.blocks, parts, static_cast<std::uint64_t>(times),
                                    reinterpret_cast<std::uint64_t*>(sum.bytes())});
  });
}

}  // namespace dhp::detail
