// Implements reductions on the Cpu over fixed tiles, so that the number of threads changes no bit.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/reduce.hpp>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace dhp::detail::cpu {

/// The signed integer type that has the size of T.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;

/// Returns the sum of term(value) over all elements, in double and by fixed tiles.
double tiled_sum(Cpu& dev, ConstView<Cpu> x, auto term) {
  constexpr std::int64_t tile = 1 << 14;
  std::vector<double> parts(as_size((x.count() + tile - 1) / tile));
  visit_accumulator(accumulation_type(x.dtype()), [&]<class A>(TypeTag<A>) {
    const auto step = x.dtype() == dtype_of<A>() ? tile : converted_block;
    dev.for_ranges(x.count(), tile, [&](std::int64_t first, std::int64_t last) {
      A block[converted_block];
      LaneSum<double> sum;
      for (auto at = first; at < last; at += step) {
        const auto count = std::min(step, last - at);
        sum.add(count, [term, values = read<A>(x, at, count, block)](std::int64_t which) {
          return term(static_cast<double>(values[which]));
        });
      }
      parts[as_size(first / tile)] = sum.total();
    });
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

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
void sum_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> out) {
  *out.data<double>() = cpu::tiled_sum(dev, x, [](double value) { return value; });
}
void sum_of_squares_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> out) {
  *out.data<double>() = cpu::tiled_sum(dev, x, [](double value) { return value * value; });
}
void sum_of_magnitudes_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> out) {
  *out.data<double>() = cpu::tiled_sum(dev, x, [](double value) { return std::fabs(value); });
}
void find_nonfinite_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> flag) {
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    // Without the sign bit, the bits of a non-finite value are at least the bits of infinity.
    using Bits = cpu::BitsOf<T>;
    const auto infinite = std::bit_cast<Bits>(static_cast<T>(HUGE_VALF));
    constexpr auto magnitude = std::numeric_limits<Bits>::max();
    const T* const from = x.data<T>();
    std::atomic<bool> finite{true};
    dev.for_ranges(x.count(), 1 << 15, [&](std::int64_t first, std::int64_t last) {
      Bits largest = 0;
      for (auto at = first; at < last; ++at) {
        const auto size = static_cast<Bits>(std::bit_cast<Bits>(from[at]) & magnitude);
        largest = size > largest ? size : largest;
      }
      if (largest >= infinite) finite = false;
    });
    if (!finite) *flag.data<std::int32_t>() = 1;
  });
}

}  // namespace dhp::detail
