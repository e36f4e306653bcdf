// Implements reductions on the Cpu over fixed tiles, so that the number of threads changes no bit.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/reduce.hpp>

#include <numeric>
#include <vector>

namespace dhp::detail::cpu {

/// Returns the sum of squares of x, computed in the calling thread.
double squares_of(const auto* x, std::int64_t count) {
  return lane_sum<double>(count, [=](std::int64_t at) {
    const double value = static_cast<double>(x[at]);
    return value * value;
  });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void column_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> sums, double beta) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto add = [](auto, std::int64_t first, std::int64_t count, A* totals, const A* values) {
      for (std::int64_t at = 0; at < count; ++at) totals[first + at] += values[at];
    };
    const auto finish = [beta, to = sums.data<A>()](std::int64_t, std::int64_t c, double value) {
      const double old = beta == 0 ? 0 : beta * static_cast<double>(to[c]);
      to[c] = static_cast<A>(old + value);
    };
    cpu::sum_rows<A>(dev, x.rows(), sums.count(), x.columns(), 1, add, finish, x.data<T>());
  });
}
/// Sums rule(element) over all elements, in double and by fixed tiles.
template <class Rule>
void sum_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, const Rule& rule, View<Cpu> out) {
  constexpr std::int64_t tile = 1 << 14;
  std::vector<double> parts(as_size((x.count() + tile - 1) / tile));
  visit_accumulator(accumulation_type(x.dtype()), [&]<class A>(TypeTag<A>) {
    const auto step = x.dtype() == dtype_of<A>() ? tile : cpu::row_block;
    dev.for_ranges(x.count(), tile, [&](std::int64_t first, std::int64_t last) {
      A block[cpu::row_block];
      cpu::LaneSum<double> sum;
      for (auto at = first; at < last; at += step) {
        const auto count = std::min(step, last - at);
        sum.add(count, [rule, values = cpu::read<A>(x, at, count, block)](std::int64_t which) {
          return rule(static_cast<double>(values[which]));
        });
      }
      parts[as_size(first / tile)] = sum.total();
    });
  });
  *out.data<double>() = std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace dhp::detail
