#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/ops/layer_norm.hpp>

#include <cmath>
#include <vector>

namespace dhp::cpu {

template <class T>
struct LayerNormKernel {
  using A = Accumulator<T>;
  static void forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, const A* gamma,
                      const A* beta, double epsilon, T* y, A* mean, A* inv_std);
  static void backward_data(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                            const T* x, const A* gamma, const A* mean, const A* inv_std, T* dx);
  static void backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                            const T* x, const A* mean, const A* inv_std, A* dgamma, A* dbeta,
                            double beta);
  static void residual_forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                               const T* residual, const RowNumbers<Cpu>& numbers,
                               const DropoutOptions& options, const A* gamma, const A* beta,
                               double epsilon, T* sum, T* y, A* mean, A* inv_std);
  static void residual_backward_data(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                                     const T* sum, const A* gamma, const A* mean, const A* inv_std,
                                     const RowNumbers<Cpu>& numbers, const DropoutOptions& options,
                                     T* dresidual, T* dx);

  static constexpr std::int64_t row_tile = 16;

 private:
  // A row of T, or one already converted to A.
  template <class X>
  static void normalise(std::int64_t columns, const X* from, const A* gamma, const A* beta,
                        double epsilon, T* to, A& mean, A& inv_std);
  // write(column, value) receives one row of the gradient.
  template <class Write>
  static void gradient(std::int64_t columns, const T* dy, const T* x, const A* gamma, A mean,
                       A inv_std, Write write);
};

template <class T>
template <class X>
void LayerNormKernel<T>::normalise(std::int64_t columns, const X* from, const A* gamma,
                                   const A* beta, double epsilon, T* to, A& mean, A& inv_std) {
  const A middle = lane_sum<A>(columns, [=](std::int64_t c) { return static_cast<A>(from[c]); }) /
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
  mean = middle;
  inv_std = scale;
}

template <class T>
template <class Write>
void LayerNormKernel<T>::gradient(std::int64_t columns, const T* dy, const T* x, const A* gamma,
                                  A mean, A inv_std, Write write) {
  const auto normalised = [=](std::int64_t c) { return (static_cast<A>(x[c]) - mean) * inv_std; };
  const auto scaled = [=](std::int64_t c) { return static_cast<A>(dy[c]) * gamma[c]; };
  const A mean_gradient = lane_sum<A>(columns, scaled) / static_cast<A>(columns);
  const A mean_product =
      lane_sum<A>(columns, [=](std::int64_t c) { return scaled(c) * normalised(c); }) /
      static_cast<A>(columns);
  for (std::int64_t c = 0; c < columns; ++c)
    write(c, inv_std * (scaled(c) - mean_gradient - normalised(c) * mean_product));
}

template <class T>
void LayerNormKernel<T>::forward(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                                 const A* gamma, const A* beta, double epsilon, T* y, A* mean,
                                 A* inv_std) {
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row)
      normalise(columns, x + row * columns, gamma, beta, epsilon, y + row * columns, mean[row],
                inv_std[row]);
  });
}

template <class T>
void LayerNormKernel<T>::backward_data(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                       const T* dy, const T* x, const A* gamma, const A* mean,
                                       const A* inv_std, T* dx) {
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      T* to = dx + row * columns;
      gradient(columns, dy + row * columns, x + row * columns, gamma, mean[row], inv_std[row],
               [=](std::int64_t c, A value) { to[c] = static_cast<T>(value); });
    }
  });
}

template <class T>
void LayerNormKernel<T>::backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                       const T* dy, const T* x, const A* mean, const A* inv_std,
                                       A* dgamma, A* dbeta, double beta) {
  reduce_columns<A>(
      dev, rows, columns, 2,
      [=](std::int64_t row, A* products) {
        const T* gradient = dy + row * columns;
        const T* from = x + row * columns;
        A* gradients = products + columns;
        for (std::int64_t c = 0; c < columns; ++c) {
          const A g = static_cast<A>(gradient[c]);
          products[c] += g * (static_cast<A>(from[c]) - mean[row]) * inv_std[row];
          gradients[c] += g;
        }
      },
      [=](std::int64_t which, std::int64_t c, double value) {
        A& to = which == 0 ? dgamma[c] : dbeta[c];
        const double old = beta == 0 ? 0 : beta * static_cast<double>(to);
        to = static_cast<A>(old + value);
      });
}

// Each row is buffered in A in the L1 cache: outputs may alias inputs, and loops still vectorize.
template <class T>
void LayerNormKernel<T>::residual_forward(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                          const T* x, const T* residual,
                                          const RowNumbers<Cpu>& numbers,
                                          const DropoutOptions& options, const A* gamma,
                                          const A* beta, double epsilon, T* sum, T* y, A* mean,
                                          A* inv_std) {
  const A scale = static_cast<A>(1.0 / (1.0 - options.probability));
  dev.for_ranges(rows, row_tile, [&](std::int64_t first, std::int64_t last) {
    std::vector<A> buffer(static_cast<std::size_t>(columns));
    A* const values = buffer.data();
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      const T* other = residual + row * columns;
      T* to = sum + row * columns;
      for_kept(options.random, options.probability, first_number(numbers, options, row), columns,
               [=](std::int64_t c, bool keep) {
                 const A value = static_cast<A>(from[c]);
                 values[c] = static_cast<A>(other[c]) + (keep ? value : A(0)) * scale;
               });
      for (std::int64_t c = 0; c < columns; ++c) {
        to[c] = static_cast<T>(values[c]);
        values[c] = static_cast<A>(to[c]);
      }
      normalise(columns, values, gamma, beta, epsilon, y + row * columns, mean[row], inv_std[row]);
    }
  });
}

template <class T>
void LayerNormKernel<T>::residual_backward_data(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                                const T* dy, const T* sum, const A* gamma,
                                                const A* mean, const A* inv_std,
                                                const RowNumbers<Cpu>& numbers,
                                                const DropoutOptions& options, T* dresidual,
                                                T* dx) {
  const A scale = static_cast<A>(1.0 / (1.0 - options.probability));
  dev.for_ranges(rows, row_tile, [&](std::int64_t first, std::int64_t last) {
    std::vector<A> buffer(static_cast<std::size_t>(columns));
    A* const values = buffer.data();
    for (auto row = first; row < last; ++row) {
      gradient(columns, dy + row * columns, sum + row * columns, gamma, mean[row], inv_std[row],
               [=](std::int64_t c, A value) { values[c] = value; });
      T* to = dresidual + row * columns;
      for (std::int64_t c = 0; c < columns; ++c) to[c] = static_cast<T>(values[c]);
      T* through = dx + row * columns;
      for_kept(options.random, options.probability, first_number(numbers, options, row), columns,
               [=](std::int64_t c, bool keep) {
                 const A value = values[c];
                 through[c] = static_cast<T>((keep ? value : A(0)) * scale);
               });
    }
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
inline void layer_norm_backward_sums_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                        ConstView<Cpu> mean, ConstView<Cpu> inv_std,
                                        View<Cpu> dgamma, View<Cpu> dbeta, double beta) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::LayerNormKernel<T>::backward_sums(dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(),
                                           mean.data<A>(), inv_std.data<A>(), dgamma.data<A>(),
                                           dbeta.data<A>(), beta);
  });
}
inline void residual_layer_norm_forward_on(Cpu& dev, ConstView<Cpu> x, ConstView<Cpu> residual,
                                           const RowNumbers<Cpu>& rows,
                                           const DropoutOptions& options, ConstView<Cpu> gamma,
                                           ConstView<Cpu> beta, double epsilon, View<Cpu> sum,
                                           View<Cpu> y, View<Cpu> mean, View<Cpu> inv_std) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::LayerNormKernel<T>::residual_forward(
        dev, x.rows(), x.columns(), x.data<T>(), residual.data<T>(), rows, options, gamma.data<A>(),
        beta.data<A>(), epsilon, sum.data<T>(), y.data<T>(), mean.data<A>(), inv_std.data<A>());
  });
}
inline void residual_layer_norm_backward_data_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> sum,
                                                 ConstView<Cpu> gamma, ConstView<Cpu> mean,
                                                 ConstView<Cpu> inv_std,
                                                 const RowNumbers<Cpu>& rows,
                                                 const DropoutOptions& options, View<Cpu> dresidual,
                                                 View<Cpu> dx) {
  visit_floating(sum.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::LayerNormKernel<T>::residual_backward_data(
        dev, sum.rows(), sum.columns(), dy.data<T>(), sum.data<T>(), gamma.data<A>(),
        mean.data<A>(), inv_std.data<A>(), rows, options, dresidual.data<T>(), dx.data<T>());
  });
}

}  // namespace dhp
