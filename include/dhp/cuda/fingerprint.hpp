#pragma once

#include <dhp/cuda/reduce.hpp>
#include <dhp/ops/fingerprint.hpp>

namespace dhp::detail::cuda {

/// Sets parts[block] = times * the block's part of the sum.
template <class Bits>
struct FingerprintParts {
  std::int64_t count, first;
  std::uint64_t times;
  const Bits* bits;
  std::uint64_t* parts;

  constexpr void operator()(auto& block) const {
    std::uint64_t total = 0;
    for (auto at = grid_thread(block); at < count; at += grid_threads(block))
      total += bits[at] * fingerprint_factor(first + at);
    total = block_reduce(block, total, block.template shared<std::uint64_t>());
    if (block.thread() == 0) parts[block.index()] = times * total;
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void fingerprint_on(Dev& dev, ConstView<Dev> x, std::int64_t first, View<Dev> sum,
                    std::int64_t times) {
  visit_bits(x, [&]<class Bits>(const Bits* bits) {
    const auto grid = cuda::sum_grid(x.count() / 1024);
    Tensor<Dev> scratch(dev, DType::i64, {grid.blocks});
    auto* const parts = reinterpret_cast<std::uint64_t*>(scratch.mut().bytes());
    launch(dev, grid,
           cuda::FingerprintParts<Bits>{x.count(), first, static_cast<std::uint64_t>(times), bits,
                                        parts});
    launch(dev, cuda::sum_grid(1),
           cuda::SumOfParts<std::uint64_t>{grid.blocks, parts, true,
                                           reinterpret_cast<std::uint64_t*>(sum.bytes())});
  });
}

}  // namespace dhp::detail
