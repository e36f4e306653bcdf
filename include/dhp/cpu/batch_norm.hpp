// Batch normalisation on the Cpu. Statistics are summed in fixed tiles of rows, the tiles in double.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/batch_norm.hpp>

namespace dhp::cpu {

template <class T>
struct BatchNormKernel {
  using A = Accumulator<T>;
  static void sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, A* sum);
  static void squared_deviations(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                                 const A* mean, A* sum);
  static void apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, const A* mean,
                    const A* inv_std, const A* gamma, const A* beta, bool relu, T* y);
  static void backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                            const T* x, const A* mean, const A* inv_std, A* sum_dy, A* sum_dy_xhat);
  static void backward_apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                             const T* x, const A* mean, const A* inv_std, const A* gamma,
                             const A* sum_dy, const A* sum_dy_xhat, double count, T* dx);

  static constexpr std::int64_t row_tile = 64;
};

template <class T>
void BatchNormKernel<T>::sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                              A* sum) {
  reduce_columns<A>(
      dev, rows, columns, 1,
      [=](std::int64_t row, A* totals) {
        const T* from = x + row * columns;
        for (std::int64_t c = 0; c < columns; ++c) totals[c] += static_cast<A>(from[c]);
      },
      [=](std::int64_t, std::int64_t c, double value) { sum[c] = static_cast<A>(value); });
}

template <class T>
void BatchNormKernel<T>::squared_deviations(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                            const T* x, const A* mean, A* sum) {
  reduce_columns<A>(
      dev, rows, columns, 1,
      [=](std::int64_t row, A* totals) {
        const T* from = x + row * columns;
        for (std::int64_t c = 0; c < columns; ++c) {
          const A deviation = static_cast<A>(from[c]) - mean[c];
          totals[c] += deviation * deviation;
        }
      },
      [=](std::int64_t, std::int64_t c, double value) { sum[c] = static_cast<A>(value); });
}

template <class T>
void BatchNormKernel<T>::apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                               const A* mean, const A* inv_std, const A* gamma, const A* beta,
                               bool relu, T* y) {
  // The mean is subtracted first: folded into the shift, it would cost digits where it is large.
  std::vector<A> factors(static_cast<std::size_t>(columns));
  A* factor = factors.data();
  for (std::int64_t c = 0; c < columns; ++c) factor[c] = inv_std[c] * gamma[c];
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      T* to = y + row * columns;
      if (relu)
        for (std::int64_t c = 0; c < columns; ++c) {
          const A value = (static_cast<A>(from[c]) - mean[c]) * factor[c] + beta[c];
          to[c] = static_cast<T>(value < A(0) ? A(0) : value);
        }
      else
        for (std::int64_t c = 0; c < columns; ++c)
          to[c] = static_cast<T>((static_cast<A>(from[c]) - mean[c]) * factor[c] + beta[c]);
    }
  });
}

template <class T>
void BatchNormKernel<T>::backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                       const T* dy, const T* x, const A* mean, const A* inv_std,
                                       A* sum_dy, A* sum_dy_xhat) {
  reduce_columns<A>(
      dev, rows, columns, 2,
      [=](std::int64_t row, A* totals) {
        const T* gradient = dy + row * columns;
        const T* from = x + row * columns;
        A* products = totals + columns;
        for (std::int64_t c = 0; c < columns; ++c) {
          const A g = static_cast<A>(gradient[c]);
          totals[c] += g;
          products[c] += g * (static_cast<A>(from[c]) - mean[c]);
        }
      },
      [=](std::int64_t which, std::int64_t c, double value) {
        if (which == 0) sum_dy[c] = static_cast<A>(value);
        else sum_dy_xhat[c] = static_cast<A>(value * static_cast<double>(inv_std[c]));
      });
}

template <class T>
void BatchNormKernel<T>::backward_apply(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                        const T* dy, const T* x, const A* mean, const A* inv_std,
                                        const A* gamma, const A* sum_dy, const A* sum_dy_xhat,
                                        double count, T* dx) {
  // dx = p dy + q (x - mean) + r, with p, q, r per column.
  std::vector<A> table(static_cast<std::size_t>(3 * columns));
  A* p = table.data();
  A* q = p + columns;
  A* r = q + columns;
  for (std::int64_t c = 0; c < columns; ++c) {
    p[c] = gamma[c] * inv_std[c];
    q[c] = -p[c] * inv_std[c] * sum_dy_xhat[c] / static_cast<A>(count);
    r[c] = -p[c] * sum_dy[c] / static_cast<A>(count);
  }
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* gradient = dy + row * columns;
      const T* from = x + row * columns;
      T* to = dx + row * columns;
      for (std::int64_t c = 0; c < columns; ++c)
        to[c] = static_cast<T>(p[c] * static_cast<A>(gradient[c]) +
                               q[c] * (static_cast<A>(from[c]) - mean[c]) + r[c]);
    }
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void batch_norm_sums_on(Cpu& dev, ConstView<Cpu> x, View<Cpu> sum) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::BatchNormKernel<T>::sums(dev, x.rows(), x.columns(), x.data<T>(), sum.data<A>());
  });
}
inline void batch_norm_squared_deviations_on(Cpu& dev, ConstView<Cpu> x, ConstView<Cpu> mean,
                                             View<Cpu> sum) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::BatchNormKernel<T>::squared_deviations(dev, x.rows(), x.columns(), x.data<T>(),
                                                mean.data<A>(), sum.data<A>());
  });
}
inline void batch_norm_apply_on(Cpu& dev, ConstView<Cpu> x, ConstView<Cpu> mean,
                                ConstView<Cpu> inv_std, ConstView<Cpu> gamma, ConstView<Cpu> beta,
                                bool relu, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::BatchNormKernel<T>::apply(dev, x.rows(), x.columns(), x.data<T>(), mean.data<A>(),
                                   inv_std.data<A>(), gamma.data<A>(), beta.data<A>(), relu,
                                   y.data<T>());
  });
}
inline void batch_norm_backward_sums_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                        ConstView<Cpu> mean, ConstView<Cpu> inv_std,
                                        View<Cpu> sum_dy, View<Cpu> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::BatchNormKernel<T>::backward_sums(dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(),
                                           mean.data<A>(), inv_std.data<A>(), sum_dy.data<A>(),
                                           sum_dy_xhat.data<A>());
  });
}
inline void batch_norm_backward_apply_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                         ConstView<Cpu> mean, ConstView<Cpu> inv_std,
                                         ConstView<Cpu> gamma, ConstView<Cpu> sum_dy,
                                         ConstView<Cpu> sum_dy_xhat, double count, View<Cpu> dx) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::BatchNormKernel<T>::backward_apply(
        dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(), mean.data<A>(), inv_std.data<A>(),
        gamma.data<A>(), sum_dy.data<A>(), sum_dy_xhat.data<A>(), count, dx.data<T>());
  });
}

}  // namespace dhp
