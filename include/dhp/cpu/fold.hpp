// Order-free sums on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/fold.hpp>

#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace dhp::cpu {

__extension__ using Int128 = __int128;  ///< a type of g++ and clang++

/// T is double or float.
template <class T>
struct Fold {
  static bool add(Cpu& dev, const T* x, std::int64_t count, std::int64_t* high, std::int64_t* low);
  static void value(Cpu& dev, const std::int64_t* high, const std::int64_t* low, std::int64_t count,
                    T* x);
};

/// A double that holds an integer below 2^51 in magnitude, as that integer; and back. Loops over these
/// vectorise where the instruction set has no conversion between int64 and double.
inline constexpr double integer_shift = 0x1.8p52;
[[nodiscard]] inline std::int64_t to_integer(double shifted) {  // shifted = value + integer_shift
  return std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(integer_shift);
}
[[nodiscard]] inline double to_double(std::int64_t value) {
  return std::bit_cast<double>(value + std::bit_cast<std::int64_t>(integer_shift)) - integer_shift;
}

/// Wraps around instead of being undefined: a partial sum that wraps does no harm.
[[nodiscard]] inline std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

template <class T>
bool Fold<T>::add(Cpu& dev, const T* x, std::int64_t count, std::int64_t* high, std::int64_t* low) {
  constexpr auto magnitude = std::int64_t{0x7fffffffffffffff};
  constexpr auto limit = std::bit_cast<std::int64_t>(0x1p18);  // NaN and infinity lie above it, too
  std::atomic<bool> in_range{true};
  dev.for_ranges(count, elementwise_tile, [&](std::int64_t first, std::int64_t last) {
    std::int64_t largest = 0;
    for (auto at = first; at < last; ++at) {
      const double value = static_cast<double>(x[at]);
      const auto size = std::bit_cast<std::int64_t>(value) & magnitude;
      largest = size > largest ? size : largest;
      const double kept = size < limit ? value : 0.0;
      const double whole = kept * 0x1p33 + integer_shift;            // rounds to nearest
      const double rest = kept - (whole - integer_shift) * 0x1p-33;  // exact
      high[at] = wrapping_sum(high[at], to_integer(whole));
      low[at] = wrapping_sum(low[at], to_integer(rest * 0x1p83 + integer_shift));
    }
    if (largest >= limit) in_range = false;
  });
  return in_range;
}

/// high 2^-33 + low 2^-83, rounded once, for limbs below 2^51 in magnitude.
template <class T>
[[nodiscard]] T small_value(std::int64_t high, std::int64_t low) {
  const double a = to_double(high) * 0x1p-33;
  const double b = to_double(low) * 0x1p-83;
  const double sum = a + b;
  if constexpr (std::is_same_v<T, double>) {
    return sum;
  } else {
    // Round to odd first (Boldo & Melquiond 2008): an inexact even sum steps towards what it lost.
    const double from_b = sum - a;
    const double lost = (a - (sum - from_b)) + (b - from_b);
    const auto bits = std::bit_cast<std::int64_t>(sum);
    const std::int64_t step = (lost > 0) == (sum > 0) ? 1 : -1;
    const bool inexact_even = lost != 0 && (bits & 1) == 0;
    return static_cast<T>(std::bit_cast<double>(inexact_even ? bits + step : bits));
  }
}

template <class T>
void Fold<T>::value(Cpu& dev, const std::int64_t* high, const std::int64_t* low, std::int64_t count,
                    T* x) {
  constexpr std::int64_t tile = 1 << 10;
  dev.for_ranges(count, tile, [=](std::int64_t first, std::int64_t last) {
    constexpr std::int64_t bound = std::int64_t{1} << 51;
    std::int64_t beyond = 0;
    for (auto at = first; at < last; ++at)
      beyond |= static_cast<std::int64_t>(high[at] >= bound) |
                static_cast<std::int64_t>(high[at] <= -bound) |
                static_cast<std::int64_t>(low[at] >= bound) |
                static_cast<std::int64_t>(low[at] <= -bound);
    if (beyond == 0)
      for (auto at = first; at < last; ++at) x[at] = small_value<T>(high[at], low[at]);
    else  // 128 bits hold any two limbs exactly; their conversion to T rounds once
      for (auto at = first; at < last; ++at)
        x[at] = static_cast<T>(static_cast<Int128>(high[at]) * (Int128{1} << 50) + low[at]) *
                static_cast<T>(0x1p-83);
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void fold_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> high, View<Cpu> low, View<Cpu> flag) {
  visit_accumulator(x.dtype(), [&]<class T>(Tag<T>) {
    const bool fits = cpu::Fold<T>::add(dev, x.data<T>(), x.count(), high.data<std::int64_t>(),
                                        low.data<std::int64_t>());
    if (!fits) *flag.data<std::int32_t>() = 1;
  });
}
inline void unfold_on(Cpu& dev, ConstView<Cpu> high, ConstView<Cpu> low, View<Cpu> x) {
  visit_accumulator(x.dtype(), [&]<class T>(Tag<T>) {
    cpu::Fold<T>::value(dev, high.data<std::int64_t>(), low.data<std::int64_t>(), x.count(),
                        x.data<T>());
  });
}

}  // namespace dhp
