// Reductions on the Cpu, over fixed tiles.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/reduce.hpp>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace dhp::cpu {

/// The signed integer with the size of T.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                  std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;

template <class T>
struct Reductions {
  static void column_sums(Cpu& dev, const T* x, std::int64_t rows, std::int64_t columns,
                          Accumulator<T>* sums, double beta);
  static double sum(Cpu& dev, const T* x, std::int64_t count);
  static double sum_of_squares(Cpu& dev, const T* x, std::int64_t count);
  /// The same in the calling thread.
  static double squares_of(const T* x, std::int64_t count);
  static bool all_finite(Cpu& dev, const T* x, std::int64_t count);

 private:
  /// sum_of(first, count) sums the elements of a tile.
  template <class SumOf>
  static double tiled_sum(Cpu& dev, std::int64_t count, SumOf sum_of);
};

template <class T>
void Reductions<T>::column_sums(Cpu& dev, const T* x, std::int64_t rows, std::int64_t columns,
                                Accumulator<T>* sums, double beta) {
  using A = Accumulator<T>;
  reduce_columns<A>(
      dev, rows, columns, 1,
      [=](std::int64_t row, A* totals) {
        const T* from = x + row * columns;
        for (std::int64_t at = 0; at < columns; ++at) totals[at] += static_cast<A>(from[at]);
      },
      [=](std::int64_t, std::int64_t column, double value) {
        const double old = beta == 0 ? 0 : beta * static_cast<double>(sums[column]);
        sums[column] = static_cast<A>(old + value);
      });
}

template <class T>
template <class SumOf>
double Reductions<T>::tiled_sum(Cpu& dev, std::int64_t count, SumOf sum_of) {
  constexpr std::int64_t tile = 1 << 14;
  std::vector<double> parts(static_cast<std::size_t>((count + tile - 1) / tile));
  dev.for_ranges(count, tile, [&](std::int64_t first, std::int64_t last) {
    parts[static_cast<std::size_t>(first / tile)] = sum_of(first, last - first);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

template <class T>
double Reductions<T>::sum(Cpu& dev, const T* x, std::int64_t count) {
  return tiled_sum(dev, count, [=](std::int64_t first, std::int64_t of_tile) {
    return lane_sum<double>(of_tile,
                            [=](std::int64_t at) { return static_cast<double>(x[first + at]); });
  });
}

template <class T>
double Reductions<T>::sum_of_squares(Cpu& dev, const T* x, std::int64_t count) {
  return tiled_sum(dev, count, [=](std::int64_t first, std::int64_t of_tile) {
    return squares_of(x + first, of_tile);
  });
}

template <class T>
double Reductions<T>::squares_of(const T* x, std::int64_t count) {
  return lane_sum<double>(count, [=](std::int64_t at) {
    const double value = static_cast<double>(x[at]);
    return value * value;
  });
}

template <class T>
bool Reductions<T>::all_finite(Cpu& dev, const T* x, std::int64_t count) {
  // Without the sign bit, non-finite values have bits of at least infinity's.
  using Bits = BitsOf<T>;
  const auto infinite = std::bit_cast<Bits>(static_cast<T>(HUGE_VALF));
  constexpr auto magnitude = std::numeric_limits<Bits>::max();
  std::atomic<bool> finite{true};
  dev.for_ranges(count, 1 << 15, [&](std::int64_t first, std::int64_t last) {
    Bits largest = 0;
    for (auto at = first; at < last; ++at) {
      const auto size = static_cast<Bits>(std::bit_cast<Bits>(x[at]) & magnitude);
      largest = size > largest ? size : largest;
    }
    if (largest >= infinite) finite = false;
  });
  return finite;
}

}  // namespace dhp::cpu

namespace dhp {

inline void column_sums_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> sums, double beta) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    cpu::Reductions<T>::column_sums(dev, x.data<T>(), x.rows(), x.columns(),
                                    sums.data<Accumulator<T>>(), beta);
  });
}
inline void sum_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> out) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    *out.data<double>() = cpu::Reductions<T>::sum(dev, x.data<T>(), x.count());
  });
}
inline void sum_of_squares_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> out) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    *out.data<double>() = cpu::Reductions<T>::sum_of_squares(dev, x.data<T>(), x.count());
  });
}
inline void find_nonfinite_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> flag) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    if (!cpu::Reductions<T>::all_finite(dev, x.data<T>(), x.count()))
      *flag.data<std::int32_t>() = 1;
  });
}

}  // namespace dhp
