// Order-free sums on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/fold.hpp>

#include <atomic>
#include <cmath>

namespace dhp::cpu {

__extension__ using Int128 = __int128;  ///< a type of g++ and clang++

/// T is double or float.
template <class T>
struct Fold {
  static bool add(Cpu& dev, const T* x, std::int64_t count, std::int64_t* high, std::int64_t* low);
  static void value(Cpu& dev, const std::int64_t* high, const std::int64_t* low,
                    std::int64_t count, T* x);
};

template <class T>
bool Fold<T>::add(Cpu& dev, const T* x, std::int64_t count, std::int64_t* high,
                  std::int64_t* low) {
  std::atomic<bool> in_range{true};
  dev.for_ranges(count, elementwise_tile, [&](std::int64_t first, std::int64_t last) {
    bool good = true;
    for (auto at = first; at < last; ++at) {
      const double value = static_cast<double>(x[at]);
      const bool fits = std::abs(value) < 0x1p18;  // false for NaN
      good &= fits;
      const double kept = fits ? value : 0.0;
      const double whole = std::nearbyint(kept * 0x1p33);
      const double rest = kept - whole * 0x1p-33;  // exact: at most half a unit of 2^-33
      high[at] += static_cast<std::int64_t>(whole);
      low[at] += static_cast<std::int64_t>(std::nearbyint(rest * 0x1p83));
    }
    if (!good) in_range = false;
  });
  return in_range;
}

template <class T>
void Fold<T>::value(Cpu& dev, const std::int64_t* high, const std::int64_t* low,
                    std::int64_t count, T* x) {
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at) {
      // 128 bits hold both limbs exactly; long double rounds the whole once, then T once more.
      const auto total = static_cast<Int128>(high[at]) * (Int128{1} << 50) + low[at];
      x[at] = static_cast<T>(std::ldexp(static_cast<long double>(total), -83));
    }
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
