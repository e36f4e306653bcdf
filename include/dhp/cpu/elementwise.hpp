// Elementwise ops on the Cpu: vectorized loops over tiles that threads share.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/elementwise.hpp>

#include <cmath>

namespace dhp::detail::cpu {

inline constexpr std::int64_t elementwise_tile = 1 << 15;  ///< elements; fits the L2 cache

/// to[at] = f(from[at]...), in the accumulation type of T, rounded to T.
template <class T, class F, class... From>
void map(Cpu& dev, std::int64_t count, T* to, F f, const From*... from) {
  using A = Accumulator<T>;
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at) to[at] = static_cast<T>(f(static_cast<A>(from[at])...));
  });
}
/// y[at] = f(y[at], from[at]...); one pointer to y lets the loop vectorize.
template <class T, class F, class... From>
void update(Cpu& dev, std::int64_t count, T* y, F f, const From*... from) {
  using A = Accumulator<T>;
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at)
      y[at] = static_cast<T>(f(static_cast<A>(y[at]), static_cast<A>(from[at])...));
  });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void fill_on(std::same_as<Cpu> auto& dev, View<Cpu> y, double value) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cpu::map(dev, y.count(), y.data<T>(), [filler = static_cast<T>(value)] { return filler; });
  });
}
void add_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> a, ConstView<Cpu> b, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    T* const to = y.data<T>();
    if (a.dtype() == y.dtype() && b.dtype() == y.dtype())
      return cpu::map(
          dev, y.count(), to, [](A left, A right) { return left + right; }, a.data<T>(),
          b.data<T>());
    // Mixed types: converts blocks to double, with one loop per type instead of one per triple of
    // types. The sum of two floats in double, then rounded, equals the float sum.
    constexpr std::int64_t block = 512;
    const auto widen = [](ConstView<Cpu> from, std::int64_t first, std::int64_t last,
                          double* wide) {
      visit_floating(from.dtype(), [&]<class X>(Tag<X>) {
        const X* x = from.data<X>();
        for (auto at = first; at < last; ++at) wide[at - first] = static_cast<double>(x[at]);
      });
    };
    dev.for_ranges(a.count(), block, [=](std::int64_t first, std::int64_t last) {
      double left[block];
      double right[block];
      widen(a, first, last, left);
      widen(b, first, last, right);
      for (auto at = first; at < last; ++at)
        to[at] = static_cast<T>(left[at - first] + right[at - first]);
    });
  });
}
void axpy_on(std::same_as<Cpu> auto& dev, double alpha, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const auto sum = [factor = static_cast<A>(alpha)](A old, A more) {
      return old + factor * more;
    };
    visit_floating(x.dtype(), [&]<class X>(Tag<X>) {
      cpu::update(dev, x.count(), y.data<T>(), sum, x.data<X>());
    });
  });
}
void add_both_on(std::same_as<Cpu> auto& dev, const AddedVector<Cpu>& one,
                 const AddedVector<Cpu>& other, double beta) {
  for (const auto* const each : {&one, &other}) {
    if (beta == 0) fill_on(dev, each->to, 0);
    else if (beta != 1) scale_on(dev, beta, each->to);
    axpy_on(dev, each->factor, each->from, each->to);
  }
}
void scale_on(std::same_as<Cpu> auto& dev, double alpha, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const auto product = [factor = static_cast<A>(alpha)](A value) { return factor * value; };
    cpu::update(dev, y.count(), y.data<T>(), product);
  });
}
void scale_by_on(std::same_as<Cpu> auto& dev, double alpha, ConstView<Cpu> factor, View<Cpu> y) {
  scale_on(dev, alpha * *factor.data<double>(), y);
}
void cast_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    visit_floating(x.dtype(), [&]<class X>(Tag<X>) {
      // Between the two 16-bit types via float, which is exact.
      using Middle = std::conditional_t<is_16_bit<X>, float, X>;
      const X* const from = x.data<X>();
      T* const to = y.data<T>();
      dev.for_ranges(x.count(), cpu::elementwise_tile, [=](std::int64_t first, std::int64_t last) {
        for (auto at = first; at < last; ++at)
          to[at] = static_cast<T>(static_cast<Middle>(from[at]));
      });
    });
  });
}
void rsqrt_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, double epsilon, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::map(
        dev, y.count(), y.data<T>(),
        [more = static_cast<A>(epsilon)](A v) { return A(1) / std::sqrt(v + more); }, x.data<T>());
  });
}

}  // namespace dhp::detail
