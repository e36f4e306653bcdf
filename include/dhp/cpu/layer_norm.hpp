#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/ops/layer_norm.hpp>

#include <cmath>
#include <vector>

namespace dhp::detail::cpu {

/// Normalizes a row by layer norm or, if beta and mean are null, by RMS norm.
template <class T, class A>
void normalize(std::int64_t columns, const A* from, const A* gamma, const A* beta, double epsilon,
               T* to, A* mean, A& inv_std) {
  A middle = 0;
  if (mean != nullptr)
    *mean = middle =
        lane_sum<A>(columns, [=](std::int64_t c) { return from[c]; }) / static_cast<A>(columns);
  const A variance = lane_sum<A>(columns,
                                 [=](std::int64_t c) {
                                   const A deviation = from[c] - middle;
                                   return deviation * deviation;
                                 }) /
                     static_cast<A>(columns);
  const A scale = A(1) / std::sqrt(variance + static_cast<A>(epsilon));
  inv_std = scale;
  in_row_blocks<A>(columns, [&](std::int64_t first, std::int64_t count) {
    const A *const values = from + first, *const factor = gamma + first;
    write_narrowed<A>(to + first, count, [=](A* out) {
      if (beta == nullptr)
        for (std::int64_t c = 0; c < count; ++c) out[c] = values[c] * scale * factor[c];
      else
        for (std::int64_t c = 0; c < count; ++c)
          out[c] = (values[c] - middle) * scale * factor[c] + beta[first + c];
    });
  });
}

/// Computes one row of the gradient of x. For RMS norm, `centers` is false and mean is 0.
template <class A>
void norm_gradient(std::int64_t columns, const A* dy, const A* x, const A* gamma, bool centers,
                   A mean, A inv_std, A* dx) {
  const auto normalized = [=](std::int64_t c) { return (x[c] - mean) * inv_std; };
  const auto scaled = [=](std::int64_t c) { return dy[c] * gamma[c]; };
  const A mean_gradient = centers ? lane_sum<A>(columns, scaled) / static_cast<A>(columns) : A(0);
  const A mean_product =
      lane_sum<A>(columns, [=](std::int64_t c) { return scaled(c) * normalized(c); }) /
      static_cast<A>(columns);
  for (std::int64_t c = 0; c < columns; ++c)
    dx[c] = inv_std * (scaled(c) - mean_gradient - normalized(c) * mean_product);
}

/// Computes the gradients of all rows, and sums dgamma and dbeta by fixed tiles of rows. Calls write(row, values) after
/// the last read of that row of dy. values: the row of the gradient of x before rounding, which write may change.
template <class T, class Write>
void norm_gradients(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x, ConstView<Cpu> gamma,
                    ConstView<Cpu> mean, ConstView<Cpu> inv_std, View<Cpu> dgamma, View<Cpu> dbeta,
                    double beta, Write write) {
  using A = Accumulator<T>;
  constexpr std::int64_t tile = 32;
  const auto columns = x.columns();
  const bool centers = !dbeta.empty();
  reduce_columns<A>(
      dev, x.rows(), columns, centers ? 2 : 1, tile,
      [&](std::int64_t first, std::int64_t last, A* products) {
        std::vector<A> buffer(as_size(3 * columns));
        A* const values = buffer.data();
        A* const gradients = products + columns;
        for (auto row = first; row < last; ++row) {
          const A* const gradient =
              widened(dy.data<T>() + row * columns, columns, values + columns);
          const A* const from = widened(x.data<T>() + row * columns, columns, values + 2 * columns);
          const A middle = centers ? mean.data<A>()[row] : A(0), scale = inv_std.data<A>()[row];
          for (std::int64_t c = 0; c < columns; ++c) {
            products[c] += gradient[c] * (from[c] - middle) * scale;
            if (centers) gradients[c] += gradient[c];
          }
          norm_gradient(columns, gradient, from, gamma.data<A>(), centers, middle, scale, values);
          write(row, values);
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

// Each row goes through a buffer of A in the L1 cache: outputs may alias inputs, and loops still vectorize.
/// If `sum` is given, normalizes sum = residual + dropout(x).
void layer_norm_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> gamma,
                           ConstView<Cpu> beta, double epsilon, View<Cpu> y, View<Cpu> mean,
                           View<Cpu> inv_std, const NormBranch<Cpu>& branch,
                           ConstView<Cpu> residual, View<Cpu> sum) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const A scale = static_cast<A>(1.0 / (1.0 - branch.dropout.probability));
    const auto columns = x.columns();
    A* const means = data_or_null<A>(mean);
    cpu::for_rows_with_buffer<A>(dev, x.rows(), 2 * columns, [&](std::int64_t row, A* values) {
      const A* from = cpu::widened(x.data<T>() + row * columns, columns, values);
      if (!sum.empty()) {
        const A* const other =
            cpu::widened(residual.data<T>() + row * columns, columns, values + columns);
        T* const to = sum.data<T>() + row * columns;
        cpu::for_kept(branch.rows, branch.dropout, row, columns, [=](std::int64_t c, bool keep) {
          const A value = from[c];
          values[c] = other[c] + (keep ? value : A(0)) * scale;
        });
        cpu::convert(values, to, columns);
        if constexpr (!std::is_same_v<T, A>) cpu::convert(to, values, columns);
        from = values;
      }
      cpu::normalize(columns, from, gamma.data<A>(), data_or_null<A>(beta), epsilon,
                     y.data<T>() + row * columns, means == nullptr ? means : means + row,
                     inv_std.data<A>()[row]);
    });
  });
}
/// If dropped_dx is given, writes the dropout of the unrounded gradient to it.
void layer_norm_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                            ConstView<Cpu> gamma, ConstView<Cpu> mean, ConstView<Cpu> inv_std,
                            View<Cpu> dx, View<Cpu> dgamma, View<Cpu> dbeta, double beta,
                            const NormBranch<Cpu>& branch, View<Cpu> dropped_dx) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const A scale = static_cast<A>(1.0 / (1.0 - branch.dropout.probability));
    const auto columns = x.columns();
    cpu::norm_gradients<T>(
        dev, dy, x, gamma, mean, inv_std, dgamma, dbeta, beta, [&](std::int64_t row, A* values) {
          cpu::convert(values, dx.data<T>() + row * columns, columns);
          if (dropped_dx.empty()) return;
          cpu::for_kept(branch.rows, branch.dropout, row, columns, [=](std::int64_t c, bool keep) {
            values[c] = (keep ? values[c] : A(0)) * scale;
          });
          cpu::convert(values, dropped_dx.data<T>() + row * columns, columns);
        });
  });
}

}  // namespace dhp::detail
