// Layer normalisation on the Cpu.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/layer_norm.hpp>

#include <cmath>

namespace dhp::cpu {

template <class T>
struct LayerNormKernel {
  using A = Accumulator<T>;
  static void forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, const A* gamma,
                      const A* beta, double epsilon, T* y, A* mean, A* inv_std);
  static void backward_data(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                            const T* x, const A* gamma, const A* mean, const A* inv_std, T* dx);
  static void backward_gamma(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                             const T* x, const A* mean, const A* inv_std, A* dgamma, double beta);

  static constexpr std::int64_t row_tile = 16;
};

template <class T>
void LayerNormKernel<T>::forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                                 const A* gamma, const A* beta, double epsilon, T* y, A* mean,
                                 A* inv_std) {
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      T* to = y + row * columns;
      const A middle =
          lane_sum<A>(columns, [=](std::int64_t c) { return static_cast<A>(from[c]); }) /
          static_cast<A>(columns);
      const A variance = lane_sum<A>(columns,
                                     [=](std::int64_t c) {
                                       const A deviation = static_cast<A>(from[c]) - middle;
                                       return deviation * deviation;
                                     }) /
                         static_cast<A>(columns);
      const A scale = A(1) / std::sqrt(variance + static_cast<A>(epsilon));
      for (std::int64_t c = 0; c < columns; ++c)
        to[c] = static_cast<T>((static_cast<A>(from[c]) - middle) * scale * gamma[c] + beta[c]);
      mean[row] = middle;
      inv_std[row] = scale;
    }
  });
}

template <class T>
void LayerNormKernel<T>::backward_data(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                       const T* dy, const T* x, const A* gamma, const A* mean,
                                       const A* inv_std, T* dx) {
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* gradient = dy + row * columns;
      const T* from = x + row * columns;
      T* to = dx + row * columns;
      const A middle = mean[row];
      const A scale = inv_std[row];
      const auto normalised = [=](std::int64_t c) {
        return (static_cast<A>(from[c]) - middle) * scale;
      };
      const auto scaled = [=](std::int64_t c) { return static_cast<A>(gradient[c]) * gamma[c]; };
      const A mean_gradient = lane_sum<A>(columns, scaled) / static_cast<A>(columns);
      const A mean_product =
          lane_sum<A>(columns, [=](std::int64_t c) { return scaled(c) * normalised(c); }) /
          static_cast<A>(columns);
      for (std::int64_t c = 0; c < columns; ++c)
        to[c] = static_cast<T>(scale * (scaled(c) - mean_gradient - normalised(c) * mean_product));
    }
  });
}

template <class T>
void LayerNormKernel<T>::backward_gamma(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                        const T* dy, const T* x, const A* mean, const A* inv_std,
                                        A* dgamma, double beta) {
  reduce_columns<A>(
      dev, rows, columns, 1,
      [=](std::int64_t row, A* totals) {
        const T* gradient = dy + row * columns;
        const T* from = x + row * columns;
        for (std::int64_t c = 0; c < columns; ++c)
          totals[c] +=
              static_cast<A>(gradient[c]) * (static_cast<A>(from[c]) - mean[row]) * inv_std[row];
      },
      [=](std::int64_t, std::int64_t c, double value) {
        const double old = beta == 0 ? 0 : beta * static_cast<double>(dgamma[c]);
        dgamma[c] = static_cast<A>(old + value);
      });
}

}  // namespace dhp::cpu

namespace dhp {

inline void layer_norm_forward_on(Cpu& dev, ConstView<Cpu> x, ConstView<Cpu> gamma,
                                  ConstView<Cpu> beta, double epsilon, View<Cpu> y, View<Cpu> mean,
                                  View<Cpu> inv_std) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::LayerNormKernel<T>::forward(dev, x.rows(), x.columns(), x.data<T>(), gamma.data<A>(),
                                     beta.data<A>(), epsilon, y.data<T>(), mean.data<A>(),
                                     inv_std.data<A>());
  });
}
inline void layer_norm_backward_data_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                        ConstView<Cpu> gamma, ConstView<Cpu> mean,
                                        ConstView<Cpu> inv_std, View<Cpu> dx) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::LayerNormKernel<T>::backward_data(dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(),
                                           gamma.data<A>(), mean.data<A>(), inv_std.data<A>(),
                                           dx.data<T>());
  });
}
inline void layer_norm_backward_gamma_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                         ConstView<Cpu> mean, ConstView<Cpu> inv_std,
                                         View<Cpu> dgamma, double beta) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::LayerNormKernel<T>::backward_gamma(dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(),
                                            mean.data<A>(), inv_std.data<A>(), dgamma.data<A>(),
                                            beta);
  });
}

}  // namespace dhp
