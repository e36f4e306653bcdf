#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/exact_sum.hpp>

#include <atomic>
#include <cstdint>
#include <limits>

namespace dhp::detail {

void exact_accumulate_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> high,
                         View<Cpu> low, View<Cpu> flag) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = x.data<T>();
    auto* const highs = high.data<std::int64_t>();
    auto* const lows = low.data<std::int64_t>();
    std::atomic<bool> in_range{true};
    dev.for_ranges(x.count(), cpu::elementwise_tile, [&](std::int64_t first, std::int64_t last) {
      std::int64_t largest = 0;
      for (auto at = first; at < last; ++at) {
        const double value = static_cast<double>(from[at]);
        const auto size = magnitude_bits(value);
        largest = size > largest ? size : largest;
        accumulate_limbs(size < exact_limit ? value : 0.0, highs[at], lows[at]);
      }
      if (largest >= exact_limit) in_range = false;
    });
    if (!in_range) *flag.data<std::int32_t>() = 1;
  });
}
void exact_finalize_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> high, ConstView<Cpu> low,
                       ConstView<Cpu> flag, View<Cpu> x) {
  if (*flag.data<std::int32_t>() != 0)
    return fill_on(dev, x, std::numeric_limits<double>::quiet_NaN());
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    constexpr std::int64_t tile = 1 << 10;
    const auto* const h = high.data<std::int64_t>();
    const auto* const l = low.data<std::int64_t>();
    T* const to = x.data<T>();
    dev.for_ranges(x.count(), tile, [=](std::int64_t first, std::int64_t last) {
      int small = 1;  // has no branch, so that the loop vectorizes
      for (auto at = first; at < last; ++at)
        small &= static_cast<int>(is_small_limb(h[at])) & static_cast<int>(is_small_limb(l[at]));
      if (small == 1)
        for (auto at = first; at < last; ++at) to[at] = finalize_small<T>(h[at], l[at]);
      else
        for (auto at = first; at < last; ++at) to[at] = finalize_large<T>(h[at], l[at]);
    });
  });
}

}  // namespace dhp::detail
