// Elementwise ops on the Cpu: vectorized loops over tiles that threads share.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/elementwise.hpp>

#include <cmath>

namespace dhp::cpu {

inline constexpr std::int64_t elementwise_tile = 1 << 15;  ///< elements; fits the L2 cache

/// T is the output type.
template <class T>
struct Elementwise {
  static void fill(Cpu& dev, std::int64_t count, double value, T* y);
  static void add(Cpu& dev, std::int64_t count, const T* a, const T* b, T* y);
  /// For operands of mixed types.
  static void add_mixed(Cpu& dev, ConstView<Cpu> a, ConstView<Cpu> b, T* y);
  static void axpy(Cpu& dev, double alpha, ConstView<Cpu> x, T* y);
  static void scale(Cpu& dev, std::int64_t count, double alpha, T* y);
  static void cast(Cpu& dev, ConstView<Cpu> x, T* y);
  static void rsqrt(Cpu& dev, std::int64_t count, const T* x, double epsilon, T* y);
};

template <class T>
void Elementwise<T>::fill(Cpu& dev, std::int64_t count, double value, T* y) {
  const T filler = static_cast<T>(value);
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at) y[at] = filler;
  });
}

template <class T>
void Elementwise<T>::add(Cpu& dev, std::int64_t count, const T* a, const T* b, T* y) {
  using A = Accumulator<T>;
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at)
      y[at] = static_cast<T>(static_cast<A>(a[at]) + static_cast<A>(b[at]));
  });
}

template <class T>
void Elementwise<T>::add_mixed(Cpu& dev, ConstView<Cpu> a, ConstView<Cpu> b, T* y) {
  // Converts blocks to double: one loop per type instead of one per triple of types. The sum of two
  // floats in double, then rounded, equals the float sum.
  constexpr std::int64_t block = 512;
  const auto widen = [](ConstView<Cpu> from, std::int64_t first, std::int64_t last, double* to) {
    visit_floating(from.dtype(), [&]<class X>(Tag<X>) {
      const X* x = from.template data<X>();
      for (auto at = first; at < last; ++at) to[at - first] = static_cast<double>(x[at]);
    });
  };
  dev.for_ranges(a.count(), block, [=](std::int64_t first, std::int64_t last) {
    double left[block];
    double right[block];
    widen(a, first, last, left);
    widen(b, first, last, right);
    for (auto at = first; at < last; ++at)
      y[at] = static_cast<T>(left[at - first] + right[at - first]);
  });
}

template <class T>
void Elementwise<T>::axpy(Cpu& dev, double alpha, ConstView<Cpu> x, T* y) {
  using A = Accumulator<T>;
  const A factor = static_cast<A>(alpha);
  visit_floating(x.dtype(), [&]<class X>(Tag<X>) {
    const X* from = x.template data<X>();
    dev.for_ranges(x.count(), elementwise_tile, [=](std::int64_t first, std::int64_t last) {
      for (auto at = first; at < last; ++at)
        y[at] = static_cast<T>(static_cast<A>(y[at]) + factor * static_cast<A>(from[at]));
    });
  });
}

template <class T>
void Elementwise<T>::scale(Cpu& dev, std::int64_t count, double alpha, T* y) {
  using A = Accumulator<T>;
  const A factor = static_cast<A>(alpha);
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at) y[at] = static_cast<T>(factor * static_cast<A>(y[at]));
  });
}

template <class T>
void Elementwise<T>::cast(Cpu& dev, ConstView<Cpu> x, T* y) {
  visit_floating(x.dtype(), [&]<class X>(Tag<X>) {
    // Between the two 16-bit types via float, which is exact.
    using Middle = std::conditional_t<is_16_bit<X>, float, X>;
    const X* from = x.template data<X>();
    dev.for_ranges(x.count(), elementwise_tile, [=](std::int64_t first, std::int64_t last) {
      for (auto at = first; at < last; ++at) y[at] = static_cast<T>(static_cast<Middle>(from[at]));
    });
  });
}

template <class T>
void Elementwise<T>::rsqrt(Cpu& dev, std::int64_t count, const T* x, double epsilon, T* y) {
  using A = Accumulator<T>;
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at)
      y[at] = static_cast<T>(A(1) / std::sqrt(static_cast<A>(x[at]) + static_cast<A>(epsilon)));
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void fill_on(Cpu& dev, View<Cpu> y, double value) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cpu::Elementwise<T>::fill(dev, y.count(), value, y.data<T>());
  });
}
inline void add_on(Cpu& dev, ConstView<Cpu> a, ConstView<Cpu> b, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    if (a.dtype() == y.dtype() && b.dtype() == y.dtype())
      cpu::Elementwise<T>::add(dev, y.count(), a.data<T>(), b.data<T>(), y.data<T>());
    else cpu::Elementwise<T>::add_mixed(dev, a, b, y.data<T>());
  });
}
inline void axpy_on(Cpu& dev, double alpha, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(y.dtype(),
                 [&]<class T>(Tag<T>) { cpu::Elementwise<T>::axpy(dev, alpha, x, y.data<T>()); });
}
inline void scale_on(Cpu& dev, double alpha, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cpu::Elementwise<T>::scale(dev, y.count(), alpha, y.data<T>());
  });
}
inline void scale_by_on(Cpu& dev, double alpha, ConstView<Cpu> factor, View<Cpu> y) {
  scale_on(dev, alpha * *factor.data<double>(), y);
}
inline void cast_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(y.dtype(),
                 [&]<class T>(Tag<T>) { cpu::Elementwise<T>::cast(dev, x, y.data<T>()); });
}
inline void rsqrt_on(Cpu& dev, ConstView<Cpu> x, double epsilon, View<Cpu> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cpu::Elementwise<T>::rsqrt(dev, y.count(), x.data<T>(), epsilon, y.data<T>());
  });
}

}  // namespace dhp
