// Softmax on the Cpu.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/softmax.hpp>

#include <vector>

namespace dhp::cpu {

template <class T>
struct Softmax {
  using A = Accumulator<T>;
  static void forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, T* y);
  static void backward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* y, const T* dy,
                       T* dx);
  static constexpr std::int64_t row_tile = 16;
};

/// Largest of term(at), at in [0, count), count >= 1, in lanes that vectorise. What it makes of a
/// NaN is left open: the power of a NaN is one whatever the maximum.
template <class A, class Term>
[[nodiscard]] A largest(std::int64_t count, Term term) {
  constexpr std::int64_t lanes = 16;
  A most[lanes];
  for (auto& value : most) value = term(0);
  const auto take = [&](std::int64_t lane, A value) {
    most[lane] = value > most[lane] ? value : most[lane];
  };
  std::int64_t at = 0;
  for (; at + lanes <= count; at += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) take(lane, term(at + lane));
  for (; at < count; ++at) take(0, term(at));
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) take(lane, most[lane + half]);
  return most[0];
}

template <class T>
void Softmax<T>::forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, T* y) {
  if (columns == 0) return;
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    std::vector<A> powers(static_cast<std::size_t>(columns));
    A* e = powers.data();
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      T* to = y + row * columns;
      const A most = largest<A>(columns, [=](std::int64_t c) { return static_cast<A>(from[c]); });
      for (std::int64_t c = 0; c < columns; ++c) e[c] = fast_exp(static_cast<A>(from[c]) - most);
      const A inverse = A(1) / lane_sum<A>(columns, [=](std::int64_t c) { return e[c]; });
      for (std::int64_t c = 0; c < columns; ++c) to[c] = static_cast<T>(e[c] * inverse);
    }
  });
}

template <class T>
void Softmax<T>::backward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* y,
                          const T* dy, T* dx) {
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const auto at = row * columns;
      const A inner = lane_sum<A>(columns, [=](std::int64_t c) {
        return static_cast<A>(y[at + c]) * static_cast<A>(dy[at + c]);
      });
      for (std::int64_t c = 0; c < columns; ++c)
        dx[at + c] =
            static_cast<T>(static_cast<A>(y[at + c]) * (static_cast<A>(dy[at + c]) - inner));
    }
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void softmax_forward_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    cpu::Softmax<T>::forward(dev, x.rows(), x.columns(), x.data<T>(), y.data<T>());
  });
}
inline void softmax_backward_on(Cpu& dev, ConstView<Cpu> y, ConstView<Cpu> dy, View<Cpu> dx) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cpu::Softmax<T>::backward(dev, y.rows(), y.columns(), y.data<T>(), dy.data<T>(), dx.data<T>());
  });
}

}  // namespace dhp
