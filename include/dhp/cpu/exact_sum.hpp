#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/exact_sum.hpp>

#include <atomic>
#include <cstdint>
#include <limits>

namespace dhp::cpu {

/// T: double or float.
template <class T>
struct ExactSum {
  static bool add(Cpu& dev, const T* x, std::int64_t count, std::int64_t* high, std::int64_t* low);
  static void value(Cpu& dev, const std::int64_t* high, const std::int64_t* low, std::int64_t count,
                    T* x);
};

template <class T>
bool ExactSum<T>::add(Cpu& dev, const T* x, std::int64_t count, std::int64_t* high,
                      std::int64_t* low) {
  std::atomic<bool> in_range{true};
  dev.for_ranges(count, elementwise_tile, [&](std::int64_t first, std::int64_t last) {
    std::int64_t largest = 0;
    for (auto at = first; at < last; ++at) {
      const double value = static_cast<double>(x[at]);
      const auto size = magnitude_bits(value);
      largest = size > largest ? size : largest;
      accumulate_limbs(size < exact_limit ? value : 0.0, high[at], low[at]);
    }
    if (largest >= exact_limit) in_range = false;
  });
  return in_range;
}

template <class T>
void ExactSum<T>::value(Cpu& dev, const std::int64_t* high, const std::int64_t* low,
                        std::int64_t count, T* x) {
  constexpr std::int64_t tile = 1 << 10;
  dev.for_ranges(count, tile, [=](std::int64_t first, std::int64_t last) {
    int small = 1;  // branch-free, so that the loop vectorizes
    for (auto at = first; at < last; ++at)
      small &= static_cast<int>(is_small_limb(high[at])) & static_cast<int>(is_small_limb(low[at]));
    if (small == 1)
      for (auto at = first; at < last; ++at) x[at] = finalize_small<T>(high[at], low[at]);
    else
      for (auto at = first; at < last; ++at) x[at] = finalize_large<T>(high[at], low[at]);
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void exact_accumulate_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> high, View<Cpu> low,
                                View<Cpu> flag) {
  visit_accumulator(x.dtype(), [&]<class T>(Tag<T>) {
    const bool fits = cpu::ExactSum<T>::add(dev, x.data<T>(), x.count(), high.data<std::int64_t>(),
                                            low.data<std::int64_t>());
    if (!fits) *flag.data<std::int32_t>() = 1;
  });
}
inline void exact_finalize_on(Cpu& dev, ConstView<Cpu> high, ConstView<Cpu> low,
                              ConstView<Cpu> flag, View<Cpu> x) {
  if (*flag.data<std::int32_t>() != 0)
    return fill_on(dev, x, std::numeric_limits<double>::quiet_NaN());
  visit_accumulator(x.dtype(), [&]<class T>(Tag<T>) {
    cpu::ExactSum<T>::value(dev, high.data<std::int64_t>(), low.data<std::int64_t>(), x.count(),
                            x.data<T>());
  });
}

}  // namespace dhp
