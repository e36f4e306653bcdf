#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/tree_sum.hpp>

namespace dhp::detail {

void tree_sum_on(std::same_as<Cpu> auto& dev, View<Cpu> parts, const std::vector<TreeAdd>& adds,
                 View<Cpu> y, double beta) {
  // Columns that are summed at a time: the blocks of all rows stay in the L1 cache.
  constexpr std::int64_t block = cpu::row_block;
  visit_accumulator(parts.dtype(), [&]<class A>(TypeTag<A>) {
    const auto columns = parts.columns();
    A* const rows = parts.data<A>();
    dev.for_ranges(columns, 16 * block, [&](std::int64_t first, std::int64_t last) {
      A old[block];
      for (; first < last; first += block) {
        const auto count = std::min(block, last - first);
        for (const auto& each : adds) {
          A* const onto = rows + each.onto * columns + first;
          const A* const from = rows + each.from * columns + first;
          for (std::int64_t at = 0; at < count; ++at) onto[at] += from[at];
        }
        const auto wanted = std::min(count, y.count() - first);
        if (wanted <= 0) continue;
        const A* sum = rows + first;
        if (beta != 0) {
          const A* const before = cpu::read<A>(y, first, wanted, old);
          const auto factor = static_cast<A>(beta);
          for (std::int64_t at = 0; at < wanted; ++at) old[at] = factor * before[at] + sum[at];
          sum = old;
        }
        if (y.dtype() == dtype_of<A>()) std::copy(sum, sum + wanted, y.data<A>() + first);
        else cpu::write<A>(y, first, wanted, sum);
      }
    });
  });
}

}  // namespace dhp::detail
