#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/ops/layer_norm.hpp>

#include <cmath>
#include <vector>

namespace dhp::detail::cpu {

inline constexpr std::int64_t norm_row_tile = 16;

// Normalizes a row with elements of T or A, by layer norm or, if beta and mean are null, by RMS norm.
template <class X, class T, class A>
void normalise(std::int64_t columns, const X* from, const A* gamma, const A* beta, double epsilon,
               T* to, A* mean, A& inv_std) {
  A middle = 0;
  if (mean != nullptr)
    *mean = middle = lane_sum<A>(columns, [=](std::int64_t c) { return static_cast<A>(from[c]); }) /
                     static_cast<A>(columns);
  const A variance = lane_sum<A>(columns,
                                 [=](std::int64_t c) {
                                   const A deviation = static_cast<A>(from[c]) - middle;
                                   return deviation * deviation;
                                 }) /
                     static_cast<A>(columns);
  const A scale = A(1) / std::sqrt(variance + static_cast<A>(epsilon));
  inv_std = scale;
  if (beta == nullptr) {
    for (std::int64_t c = 0; c < columns; ++c)
      to[c] = static_cast<T>(static_cast<A>(from[c]) * scale * gamma[c]);
    return;
  }
  for (std::int64_t c = 0; c < columns; ++c)
    to[c] = static_cast<T>((static_cast<A>(from[c]) - middle) * scale * gamma[c] + beta[c]);
}

// Passes one row of the gradient of x to write(column, value). For RMS norm, `centers` is false and mean is 0.
template <class T, class A, class Write>
void norm_gradient(std::int64_t columns, const T* dy, const T* x, const A* gamma, bool centers,
                   A mean, A inv_std, Write write) {
  const auto normalised = [=](std::int64_t c) { return (static_cast<A>(x[c]) - mean) * inv_std; };
  const auto scaled = [=](std::int64_t c) { return static_cast<A>(dy[c]) * gamma[c]; };
  const A mean_gradient = centers ? lane_sum<A>(columns, scaled) / static_cast<A>(columns) : A(0);
  const A mean_product =
      lane_sum<A>(columns, [=](std::int64_t c) { return scaled(c) * normalised(c); }) /
      static_cast<A>(columns);
  for (std::int64_t c = 0; c < columns; ++c)
    write(c, inv_std * (scaled(c) - mean_gradient - normalised(c) * mean_product));
}

/// Computes the gradients of all rows, and sums dgamma and dbeta by fixed tiles of rows. write(row, values) receives an
/// unrounded row of the gradient of x, after the last read of that row of dy.
template <class T, class Write>
void norm_gradients(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x, ConstView<Cpu> gamma,
                    ConstView<Cpu> mean, ConstView<Cpu> inv_std, View<Cpu> dgamma, View<Cpu> dbeta,
                    double beta, Write write) {
  using A = Accumulator<T>;
  constexpr std::int64_t tile = 32;
  const auto columns = x.columns();
  const bool centers = !dbeta.empty();
  reduce_column_tiles<A>(
      dev, x.rows(), columns, centers ? 2 : 1, tile,
      [&](std::int64_t first, std::int64_t last, A* products) {
        std::vector<A> buffer(as_size(columns));
        A* const values = buffer.data();
        A* const gradients = products + columns;
        for (auto row = first; row < last; ++row) {
          const T* gradient = dy.data<T>() + row * columns;
          const T* from = x.data<T>() + row * columns;
          const A middle = centers ? mean.data<A>()[row] : A(0), scale = inv_std.data<A>()[row];
          for (std::int64_t c = 0; c < columns; ++c) {
            const A g = static_cast<A>(gradient[c]);
            products[c] += g * (static_cast<A>(from[c]) - middle) * scale;
            if (centers) gradients[c] += g;
          }
          norm_gradient(columns, gradient, from, gamma.data<A>(), centers, middle, scale,
                        [=](std::int64_t c, A value) { values[c] = value; });
          write(row, static_cast<const A*>(values));
        }
      },
      [beta, to_gamma = dgamma.data<A>(), to_beta = data_or_null<A>(dbeta)](
          std::int64_t which, std::int64_t c, double value) {
        A& to = which == 0 ? to_gamma[c] : to_beta[c];
        const double old = beta == 0 ? 0 : beta * static_cast<double>(to);
        to = static_cast<A>(old + value);
      });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void layer_norm_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> gamma,
                           ConstView<Cpu> beta, double epsilon, View<Cpu> y, View<Cpu> mean,
                           View<Cpu> inv_std) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    cpu::for_rows(dev, x.rows(), cpu::norm_row_tile,
                  [=, columns = x.columns(), from = x.data<T>(), scale = gamma.data<A>(),
                   shift = data_or_null<A>(beta), to = y.data<T>(), means = data_or_null<A>(mean),
                   inverses = inv_std.data<A>()](std::int64_t row) {
                    cpu::normalise(columns, from + row * columns, scale, shift, epsilon,
                                   to + row * columns, means == nullptr ? means : means + row,
                                   inverses[row]);
                  });
  });
}
void layer_norm_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                            ConstView<Cpu> gamma, ConstView<Cpu> mean, ConstView<Cpu> inv_std,
                            View<Cpu> dx, View<Cpu> dgamma, View<Cpu> dbeta, double beta) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    cpu::norm_gradients<T>(
        dev, dy, x, gamma, mean, inv_std, dgamma, dbeta, beta,
        [columns = x.columns(), all = dx.data<T>()](std::int64_t row, const A* values) {
          T* const to = all + row * columns;
          for (std::int64_t c = 0; c < columns; ++c) to[c] = static_cast<T>(values[c]);
        });
  });
}

// Each row goes through a buffer of A in the L1 cache: outputs may alias inputs, and loops still vectorize.
void residual_layer_norm_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x,
                                    ConstView<Cpu> residual, const RowNumbers<Cpu>& rows,
                                    const DropoutOptions& options, ConstView<Cpu> gamma,
                                    ConstView<Cpu> beta, double epsilon, View<Cpu> sum, View<Cpu> y,
                                    View<Cpu> mean, View<Cpu> inv_std) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const A scale = static_cast<A>(1.0 / (1.0 - options.probability));
    const auto columns = x.columns();
    dev.for_ranges(x.rows(), cpu::norm_row_tile, [&](std::int64_t first, std::int64_t last) {
      std::vector<A> buffer(as_size(columns));
      A* const values = buffer.data();
      for (auto row = first; row < last; ++row) {
        const T* from = x.data<T>() + row * columns;
        const T* other = residual.data<T>() + row * columns;
        T* to = sum.data<T>() + row * columns;
        cpu::for_kept(rows, options, row, columns, [=](std::int64_t c, bool keep) {
          const A value = static_cast<A>(from[c]);
          values[c] = static_cast<A>(other[c]) + (keep ? value : A(0)) * scale;
        });
        for (std::int64_t c = 0; c < columns; ++c) {
          to[c] = static_cast<T>(values[c]);
          values[c] = static_cast<A>(to[c]);
        }
        cpu::normalise(columns, values, gamma.data<A>(), beta.data<A>(), epsilon,
                       y.data<T>() + row * columns, mean.data<A>() + row, inv_std.data<A>()[row]);
      }
    });
  });
}
void residual_layer_norm_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy,
                                     ConstView<Cpu> sum, ConstView<Cpu> gamma, ConstView<Cpu> mean,
                                     ConstView<Cpu> inv_std, const RowNumbers<Cpu>& rows,
                                     const DropoutOptions& options, View<Cpu> dresidual,
                                     View<Cpu> dx, View<Cpu> dgamma, View<Cpu> dbeta, double beta) {
  visit_floating(sum.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const A scale = static_cast<A>(1.0 / (1.0 - options.probability));
    const auto columns = sum.columns();
    cpu::norm_gradients<T>(dev, dy, sum, gamma, mean, inv_std, dgamma, dbeta, beta,
                           [&](std::int64_t row, const A* values) {
                             T* to = dresidual.data<T>() + row * columns;
                             for (std::int64_t c = 0; c < columns; ++c)
                               to[c] = static_cast<T>(values[c]);
                             T* through = dx.data<T>() + row * columns;
                             cpu::for_kept(
                                 rows, options, row, columns, [=](std::int64_t c, bool keep) {
                                   through[c] = static_cast<T>((keep ? values[c] : A(0)) * scale);
                                 });
                           });
  });
}

}  // namespace dhp::detail
