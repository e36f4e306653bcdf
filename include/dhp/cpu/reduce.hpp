// Reductions on the Cpu, over fixed tiles.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/reduce.hpp>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace dhp::detail::cpu {

/// The signed integer with the size of T.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;

/// sum_of(first, count) sums the elements of a tile.
template <class SumOf>
double tiled_sum(Cpu& dev, std::int64_t count, SumOf sum_of) {
  constexpr std::int64_t tile = 1 << 14;
  std::vector<double> parts(static_cast<std::size_t>((count + tile - 1) / tile));
  dev.for_ranges(count, tile, [&](std::int64_t first, std::int64_t last) {
    parts[static_cast<std::size_t>(first / tile)] = sum_of(first, last - first);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

/// The sum of squares, in the calling thread.
template <class T>
double squares_of(const T* x, std::int64_t count) {
  return lane_sum<double>(count, [=](std::int64_t at) {
    const double value = static_cast<double>(x[at]);
    return value * value;
  });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void column_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> sums, double beta) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::reduce_columns<A>(
        dev, x.rows(), sums.count(), 1,
        [columns = sums.count(), stride = x.columns(), all = x.data<T>()](std::int64_t row,
                                                                          A* totals) {
          const T* from = all + row * stride;
          for (std::int64_t at = 0; at < columns; ++at) totals[at] += static_cast<A>(from[at]);
        },
        [beta, to = sums.data<A>()](std::int64_t, std::int64_t column, double value) {
          const double old = beta == 0 ? 0 : beta * static_cast<double>(to[column]);
          to[column] = static_cast<A>(old + value);
        });
  });
}
void sum_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> out) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    *out.data<double>() = cpu::tiled_sum(
        dev, x.count(), [from = x.data<T>()](std::int64_t first, std::int64_t count) {
          return cpu::lane_sum<double>(
              count, [=](std::int64_t at) { return static_cast<double>(from[first + at]); });
        });
  });
}
void sum_of_squares_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> out) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    *out.data<double>() = cpu::tiled_sum(
        dev, x.count(), [from = x.data<T>()](std::int64_t first, std::int64_t count) {
          return cpu::squares_of(from + first, count);
        });
  });
}
void sum_of_magnitudes_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> out) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    *out.data<double>() = cpu::tiled_sum(
        dev, x.count(), [from = x.data<T>()](std::int64_t first, std::int64_t count) {
          return cpu::lane_sum<double>(count, [=](std::int64_t at) {
            return std::fabs(static_cast<double>(from[first + at]));
          });
        });
  });
}
void find_nonfinite_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> flag) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    // Without the sign bit, non-finite values have bits of at least infinity's.
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
