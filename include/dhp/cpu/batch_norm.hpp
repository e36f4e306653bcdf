// Implements batch normalization on the Cpu. Statistics are sums over fixed tiles of rows; tiles are added in double.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/batch_norm.hpp>

namespace dhp::detail::cpu {

/// Gradient mask of a ReLU: returns dy where the recomputed output is positive, else 0.
template <class A>
struct PositivePass {
  const A* factor;  ///< inv_std * gamma
  const A* shift;   ///< beta
  A operator()(A dy, A deviation, std::int64_t c) const {
    return deviation * factor[c] + shift[c] > A(0) ? dy : A(0);
  }
};

/// Returns inv_std * gamma, one factor per channel.
template <class A>
[[nodiscard]] std::vector<A> norm_factors(const BatchNormVectors<Cpu>& vectors) {
  std::vector<A> made(as_size(vectors.gamma.count()));
  for (std::size_t c = 0; c < made.size(); ++c)
    made[c] = vectors.inv_std.data<A>()[c] * vectors.gamma.data<A>()[c];
  return made;
}

inline constexpr std::int64_t batch_norm_tile = 64;  ///< rows that a thread takes at a time

/// Adds dy and dy * (x - mean) of one row to `sums` and `products`, in `count` columns.
template <class A>
void add_norm_gradients(std::int64_t count, const A* dy, const A* x, const A* mean, A* sums,
                        A* products) {
  for (std::int64_t c = 0; c < count; ++c) {
    sums[c] += dy[c];
    products[c] += dy[c] * (x[c] - mean[c]);
  }
}
/// Converts the sums of add_norm_gradients to sum_dy and sum_dy_xhat.
template <class A>
struct FinishNormGradients {
  const A* inv_std;
  A* sum_dy;
  A* sum_dy_xhat;
  void operator()(std::int64_t which, std::int64_t c, double value) const {
    if (which == 0) sum_dy[c] = static_cast<A>(value);
    else sum_dy_xhat[c] = static_cast<A>(value * static_cast<double>(inv_std[c]));
  }
};

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void batch_norm_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> sum) {
  column_sums_on(dev, x, sum, 0);
}
void batch_norm_squared_deviations_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x,
                                      ConstView<Cpu> mean, View<Cpu> sum) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    cpu::reduce_columns<A>(
        dev, x.rows(), x.columns(), 1,
        [columns = x.columns(), all = x.data<T>(), middle = mean.data<A>()](std::int64_t row,
                                                                            A* totals) {
          cpu::in_row_blocks(columns, [&](std::int64_t first, std::int64_t count) {
            A wide[cpu::row_block];
            const A* const values = cpu::widened(all + row * columns + first, count, wide);
            for (std::int64_t c = 0; c < count; ++c) {
              const A deviation = values[c] - middle[first + c];
              totals[first + c] += deviation * deviation;
            }
          });
        },
        [to = sum.data<A>()](std::int64_t, std::int64_t c, double value) {
          to[c] = static_cast<A>(value);
        });
  });
}
void batch_norm_apply_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x,
                         const BatchNormVectors<Cpu>& vectors, ConstView<Cpu> residual, bool relu,
                         View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    // Subtract the mean first: folding a large mean into the shift would lose digits.
    const auto factors = cpu::norm_factors<A>(vectors);
    const auto map = [&](auto with_residual, auto with_relu) {
      cpu::for_rows(
          dev, x.rows(), cpu::batch_norm_tile,
          [=, columns = x.columns(), from = x.data<T>(), to = y.data<T>(),
           all_factors = factors.data(), all_means = vectors.mean.data<A>(),
           all_shifts = vectors.beta.data<A>(),
           other = with_residual ? residual.data<T>() : nullptr](std::int64_t row) {
            cpu::in_row_blocks(columns, [&](std::int64_t first, std::int64_t count) {
              const auto at = row * columns + first;
              A wide[cpu::row_block], wide_other[cpu::row_block];
              const A* const values = cpu::widened(from + at, count, wide);
              const A* added = nullptr;
              if constexpr (with_residual) added = cpu::widened(other + at, count, wide_other);
              const A *const mean = all_means + first, *const factor = all_factors + first,
                             *const shift = all_shifts + first;
              cpu::write_narrowed<A>(to + at, count, [=](A* out) {
                for (std::int64_t c = 0; c < count; ++c) {
                  A value = (values[c] - mean[c]) * factor[c] + shift[c];
                  if constexpr (with_residual) value += added[c];
                  if constexpr (with_relu) value = value < A(0) ? A(0) : value;  // keeps NaN
                  out[c] = value;
                }
              });
            });
          });
    };
    const std::true_type yes;
    const std::false_type no;
    if (residual.empty() && !relu) map(no, no);
    else if (residual.empty()) map(no, yes);
    else if (!relu) map(yes, no);
    else map(yes, yes);
  });
}
void batch_norm_backward_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                 const BatchNormVectors<Cpu>& vectors, bool relu, View<Cpu> sum_dy,
                                 View<Cpu> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cpu::FinishNormGradients<A> finish{vectors.inv_std.data<A>(), sum_dy.data<A>(),
                                             sum_dy_xhat.data<A>()};
    const auto columns = x.columns();
    const T *const gradients = dy.data<T>(), *const from = x.data<T>();
    const A* const mean = vectors.mean.data<A>();
    const auto factors = cpu::norm_factors<A>(vectors);
    const cpu::PositivePass<A> pass{factors.data(), vectors.beta.data<A>()};
    cpu::reduce_columns<A>(
        dev, x.rows(), columns, 2,
        [=](std::int64_t row, A* totals) {
          // The masked gradient goes through a small buffer, because a single loop would not vectorize.
          A passed[cpu::row_block], wide[cpu::row_block], wide_gradients[cpu::row_block];
          cpu::in_row_blocks(columns, [&](std::int64_t first, std::int64_t count) {
            const std::int64_t at = row * columns + first;
            const A* const values = cpu::widened(from + at, count, wide);
            const A* above = cpu::widened(gradients + at, count, wide_gradients);
            if (relu) {
              for (std::int64_t c = 0; c < count; ++c)
                passed[c] = pass(above[c], values[c] - mean[first + c], first + c);
              above = passed;
            }
            cpu::add_norm_gradients(count, above, values, mean + first, totals + first,
                                    totals + columns + first);
          });
        },
        finish);
  });
}
void batch_norm_residual_backward_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy,
                                          ConstView<Cpu> y, ConstView<Cpu> x,
                                          const BatchNormVectors<Cpu>& vectors, View<Cpu> dresidual,
                                          View<Cpu> sum_dy, View<Cpu> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto columns = x.columns();
    cpu::reduce_columns<A>(
        dev, x.rows(), columns, 2,
        [=, gradients = dy.data<T>(), result = y.data<T>(), from = x.data<T>(),
         mean = vectors.mean.data<A>(), to = dresidual.data<T>()](std::int64_t row, A* totals) {
          cpu::in_row_blocks(columns, [&](std::int64_t first, std::int64_t count) {
            const std::int64_t at = row * columns + first;
            A wide[cpu::row_block], wide_result[cpu::row_block], wide_gradients[cpu::row_block];
            const A* const values = cpu::widened(from + at, count, wide);
            const A* const made = cpu::widened(result + at, count, wide_result);
            const A* const above = cpu::widened(gradients + at, count, wide_gradients);
            cpu::write_narrowed<A>(to + at, count, [&](A* out) {
              for (std::int64_t c = 0; c < count; ++c) out[c] = made[c] > A(0) ? above[c] : A(0);
              cpu::add_norm_gradients(count, out, values, mean + first, totals + first,
                                      totals + columns + first);
            });
          });
        },
        cpu::FinishNormGradients<A>{vectors.inv_std.data<A>(), sum_dy.data<A>(),
                                    sum_dy_xhat.data<A>()});
  });
}
void batch_norm_backward_apply_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                  const BatchNormVectors<Cpu>& vectors, bool relu,
                                  ConstView<Cpu> sum_dy, ConstView<Cpu> sum_dy_xhat, double count,
                                  View<Cpu> dx) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto columns = x.columns();
    const A* const inv_std = vectors.inv_std.data<A>();
    // For each column, dx = p dy + q (x - mean) + r. p is also the factor of the forward pass.
    std::vector<A> table(as_size(3 * columns));
    A* p = table.data();
    A* q = p + columns;
    A* r = q + columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      p[c] = inv_std[c] * vectors.gamma.data<A>()[c];
      q[c] = -p[c] * inv_std[c] * sum_dy_xhat.data<A>()[c] / static_cast<A>(count);
      r[c] = -p[c] * sum_dy.data<A>()[c] / static_cast<A>(count);
    }
    const auto map = [&](auto pass) {
      cpu::for_rows(dev, x.rows(), cpu::batch_norm_tile,
                    [=, gradients = dy.data<T>(), from = x.data<T>(), to = dx.data<T>(),
                     mean = vectors.mean.data<A>()](std::int64_t row) {
                      cpu::in_row_blocks(columns, [&](std::int64_t first, std::int64_t part) {
                        const std::int64_t at = row * columns + first;
                        A wide_x[cpu::row_block], wide_gradients[cpu::row_block];
                        const A* const values = cpu::widened(from + at, part, wide_x);
                        const A* const above = cpu::widened(gradients + at, part, wide_gradients);
                        cpu::write_narrowed<A>(to + at, part, [=](A* out) {
                          for (std::int64_t c = 0; c < part; ++c) {
                            const A deviation = values[c] - mean[first + c];
                            const A gradient = pass(above[c], deviation, first + c);
                            out[c] =
                                p[first + c] * gradient + q[first + c] * deviation + r[first + c];
                          }
                        });
                      });
                    });
    };
    if (relu) map(cpu::PositivePass<A>{p, vectors.beta.data<A>()});
    else map([](A gradient, A, std::int64_t) { return gradient; });
  });
}

void batch_norm_from_sums_on(std::same_as<Cpu> auto&, ConstView<Cpu> sums, std::int64_t rows,
                             double epsilon, View<Cpu> mean, View<Cpu> inv_std,
                             View<Cpu> squared_deviations) {
  visit_accumulator(sums.dtype(), [&]<class A>(TypeTag<A>) {
    const auto channels = mean.count();
    const A* const sum = sums.data<A>();
    for (std::int64_t at = 0; at < channels; ++at) {
      const NormFromSums of(static_cast<double>(sum[at]), static_cast<double>(sum[channels + at]),
                            static_cast<double>(rows), epsilon);
      mean.data<A>()[at] = static_cast<A>(of.mean);
      inv_std.data<A>()[at] = static_cast<A>(of.inv_std);
      squared_deviations.data<A>()[at] = static_cast<A>(of.squared_deviations);
    }
  });
}

}  // namespace dhp::detail
