// Implements elementwise ops on the Cpu by vectorized loops. Threads share tiles of elements. Loops are compiled for
// float and double; elements of other types are converted block by block in the L1 cache.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/vector.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/ops/elementwise.hpp>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace dhp::detail::cpu {

inline constexpr std::int64_t elementwise_tile = 1 << 15;  ///< elements; a tile fits the L2 cache

/// Returns `count` elements of x from `first` on as A: in place if x has type A, else converted to `block`.
template <class A>
[[nodiscard]] const A* read(const ConstView<Cpu>& x, std::int64_t first, std::int64_t count,
                            A* block) {
  if (x.dtype() == dtype_of<A>()) return x.data<A>() + first;
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, A>) {
      convert(x.data<T>() + first, block, count);
    }
  });
  return block;
}
/// Rounds `count` values of A to the elements of y from `first` on. No-op if y has type A: map() wrote in place.
template <class A>
void write(const View<Cpu>& y, std::int64_t first, std::int64_t count, const A* block) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, A>) {
      convert(block, y.data<T>() + first, count);
    }
  });
}

/// y[at] = f(from[at]...), computed in A (float or double) and rounded to the type of y, which may be in `from`.
template <class A>
void map(Cpu& dev, const View<Cpu>& y, auto f, const auto&... from) {
  const bool in_place = y.dtype() == dtype_of<A>();
  const bool whole = (in_place && ... && (from.dtype() == dtype_of<A>()));
  dev.for_ranges(y.count(), elementwise_tile, [&](std::int64_t first, std::int64_t last) {
    A result[row_block], converted[sizeof...(from) + 1][row_block];
    const auto step = whole ? last - first : row_block;
    for (; first < last; first += step) {
      const auto count = std::min(step, last - first);
      int next = 0;
      [[maybe_unused]] const auto open = [&](const ConstView<Cpu>& x) {
        return read<A>(x, first, count, converted[next++]);
      };
      A* const to = in_place ? y.data<A>() + first : result;
      for_vectors(count, to, f, open(from)...);
      if (!in_place) write<A>(y, first, count, result);
    }
  });
}
/// Like map<A>, where A is the accumulation type of y. f takes floats, doubles, or vectors of floats.
void map(Cpu& dev, const View<Cpu>& y, auto f, const auto&... from) {
  visit_accumulator(accumulation_type(y.dtype()),
                    [&]<class A>(TypeTag<A>) { map<A>(dev, y, f, from...); });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void fill_on(std::same_as<Cpu> auto& dev, View<Cpu> y, double value) {
  const auto type = y.dtype() == DType::f32 ? DType::f32 : DType::f64;  // f64: no double rounding
  visit_accumulator(type, [&]<class A>(TypeTag<A>) {
    cpu::map<A>(dev, y, [filler = static_cast<A>(value)] { return filler; });
  });
}
void add_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> a, ConstView<Cpu> b, View<Cpu> y) {
  // Mixed types are added in double. The double sum of two floats, rounded to float, equals their float sum.
  const bool alike = a.dtype() == y.dtype() && b.dtype() == y.dtype();
  visit_accumulator(alike ? accumulation_type(y.dtype()) : DType::f64, [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, y, [](auto left, auto right) { return left + right; }, a, b);
  });
}
void axpy_on(std::same_as<Cpu> auto& dev, double alpha, ConstView<Cpu> x, View<Cpu> y) {
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, y,
        [factor = static_cast<A>(alpha)](auto old, auto more) { return old + factor * more; }, y,
        x);
  });
}
void add_both_on(std::same_as<Cpu> auto& dev, const AddedVector<Cpu>& one,
                 const AddedVector<Cpu>& other, double beta) {
  for (const auto* const each : {&one, &other}) {
    if (beta == 0) fill_on(dev, each->to, 0);
    else if (beta != 1) scale_on(dev, beta, ConstView<Cpu>(), each->to);
    axpy_on(dev, each->factor, each->from, each->to);
  }
}
void scale_on(std::same_as<Cpu> auto& dev, double alpha, ConstView<Cpu> factor, View<Cpu> y) {
  if (!factor.empty()) alpha *= *factor.data<double>();
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, y, [by = static_cast<A>(alpha)](auto value) { return by * value; }, y);
  });
}
void cast_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> y) {
  const bool wide = x.dtype() == DType::f64 || y.dtype() == DType::f64;
  visit_accumulator(wide ? DType::f64 : DType::f32, [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, y, [](A value) { return value; }, x);
  });
}
void rsqrt_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, double epsilon, View<Cpu> y) {
  visit_accumulator(accumulation_type(y.dtype()), [&]<class A>(TypeTag<A>) {
    cpu::map<A>(
        dev, y, [more = static_cast<A>(epsilon)](A v) { return A(1) / std::sqrt(v + more); }, x);
  });
}

}  // namespace dhp::detail
