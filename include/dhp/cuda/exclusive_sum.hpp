// Exclusive prefix sums.
#pragma once

#include <dhp/cuda/block.hpp>

namespace dhp::cuda {

/// Threads of one block for `count` items, in whole warps.
[[nodiscard]] inline int threads_for(std::int64_t count) {
  const auto wanted = std::min<std::int64_t>(count, 1024) + warp_size - 1;
  return static_cast<int>(std::max<std::int64_t>(wanted / warp_size, 1)) * warp_size;
}

/// values[i] = the sum of values[0, i); one block.
struct ExclusiveSum {
  std::int64_t count;
  std::int32_t* values;

  template <class B>
  constexpr void operator()(B& block) const {
    const int threads = block.threads();
    const int me = block.thread();
    const auto share = (count + threads - 1) / threads;
    const auto first = std::min(me * share, count);
    const auto last = std::min(first + share, count);
    std::int32_t mine = 0;
    for (auto at = first; at < last; ++at) mine += values[at];

    auto* const sums = block.template shared<std::int32_t>();
    sums[me] = mine;
    block.sync();
    for (int distance = 1; distance < threads; distance *= 2) {  // Hillis & Steele 1986
      const auto other = me >= distance ? sums[me - distance] : 0;
      block.sync();
      sums[me] += other;
      block.sync();
    }
    std::int32_t sum = sums[me] - mine;
    for (auto at = first; at < last; ++at) {
      const auto value = values[at];
      values[at] = sum;
      sum += value;
    }
  }
};

template <KernelDevice Dev>
void exclusive_sum(Dev& dev, std::int64_t count, std::int32_t* values) {
  const int threads = threads_for(count);
  launch(dev, {1, threads, static_cast<std::size_t>(threads) * sizeof(std::int32_t)},
         ExclusiveSum{count, values});
}

}  // namespace dhp::cuda
