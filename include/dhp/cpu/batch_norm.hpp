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
  std::vector<A> result(as_size(vectors.gamma.count()));
  for (std::size_t c = 0; c < result.size(); ++c)
    result[c] = vectors.inv_std.data<A>()[c] * vectors.gamma.data<A>()[c];
  return result;
}

/// y[row, c] = f(c, from[row, c]...) of dense matrices, computed in A.
template <class A, class T>
void map_rows(Cpu& dev, T* y, std::int64_t rows, std::int64_t columns, auto f,
              const auto*... from) {
  constexpr std::int64_t together = 64;  // rows that a thread takes at a time
  for_rows(dev, rows, together, [=](std::int64_t row) {
    const auto one = [=](std::int64_t first, std::int64_t count, const auto*... values) {
      write_narrowed<A>(y + row * columns + first, count, [=](A* out) {
        for (std::int64_t c = 0; c < count; ++c) out[c] = f(first + c, values[c]...);
      });
    };
    in_row_blocks<A>(columns, one, from + row * columns...);
  });
}

/// Sums the gradients dy, and dy * (x - mean), over rows. mask(index of the first element, first column, count, x,
/// others..., buffer) returns a block of masked dy. It can use the buffer, because a loop that masks and sums would not
/// vectorize.
template <class T>
void sum_norm_gradients(Cpu& dev, ConstView<Cpu> x, const BatchNormVectors<Cpu>& vectors,
                        View<Cpu> sum_dy, View<Cpu> sum_dy_xhat, auto mask, const auto&... others) {
  using A = Accumulator<T>;
  const auto columns = x.columns();
  const auto add = [=, mean = vectors.mean.data<A>()](std::int64_t row, std::int64_t first,
                                                      std::int64_t count, A* sums, const A* values,
                                                      const auto*... more) {
    A buffer[row_block];
    const A* const dy = mask(row * columns + first, first, count, values, more..., buffer);
    for (std::int64_t c = 0; c < count; ++c) {
      sums[first + c] += dy[c];
      sums[columns + first + c] += dy[c] * (values[c] - mean[first + c]);
    }
  };
  const auto finish = [inv_std = vectors.inv_std.data<A>(), to = sum_dy.data<A>(),
                       to_xhat = sum_dy_xhat.data<A>()](std::int64_t which, auto c, double value) {
    if (which == 0) to[c] = static_cast<A>(value);
    else to_xhat[c] = static_cast<A>(value * static_cast<double>(inv_std[c]));
  };
  sum_rows<A>(dev, x.rows(), columns, columns, 2, add, finish, x.data<T>(),
              others.template data<T>()...);
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void batch_norm_squared_deviations_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x,
                                      ConstView<Cpu> mean, View<Cpu> sum) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto columns = x.columns();
    const auto add = [middle = mean.data<A>()](auto, std::int64_t first, std::int64_t count,
                                               A* totals, const A* values) {
      for (std::int64_t c = 0; c < count; ++c) {
        const A deviation = values[c] - middle[first + c];
        totals[first + c] += deviation * deviation;
      }
    };
    const auto finish = [to = sum.data<A>()](std::int64_t, std::int64_t c, double value) {
      to[c] = static_cast<A>(value);
    };
    cpu::sum_rows<A>(dev, x.rows(), columns, columns, 1, add, finish, x.data<T>());
  });
}
void batch_norm_apply_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x,
                         const BatchNormVectors<Cpu>& vectors, ConstView<Cpu> residual, bool relu,
                         View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    // Subtract the mean first: folding a large mean into the shift would lose digits.
    const auto factors = cpu::norm_factors<A>(vectors);
    const A least = relu ? A(0) : -std::numeric_limits<A>::infinity();
    const auto normalized = [=, mean = vectors.mean.data<A>(), factor = factors.data(),
                             shift = vectors.beta.data<A>()](std::int64_t c, A value,
                                                             auto... added) {
      A result = (value - mean[c]) * factor[c] + shift[c];
      ((result += added), ...);
      return result < least ? least : result;  // keeps NaN
    };
    const auto map = [&](const auto*... from) {
      cpu::map_rows<A>(dev, y.data<T>(), x.rows(), x.columns(), normalized, x.data<T>(), from...);
    };
    if (residual.empty()) map();
    else map(residual.data<T>());
  });
}
void batch_norm_backward_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                 const BatchNormVectors<Cpu>& vectors, bool relu, View<Cpu> sum_dy,
                                 View<Cpu> sum_dy_xhat, ConstView<Cpu> y, View<Cpu> dresidual) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    if (!y.empty())
      return cpu::sum_norm_gradients<T>(
          dev, x, vectors, sum_dy, sum_dy_xhat,
          [to = dresidual.data<T>()](std::int64_t at, std::int64_t, std::int64_t count, const A*,
                                     const A* above, const A* made, A* passed) {
            for (std::int64_t c = 0; c < count; ++c) {
              const A gradient = above[c];  // always loaded, so that the loop has no branch
              passed[c] = made[c] > A(0) ? gradient : A(0);
            }
            cpu::convert(passed, to + at, count);
            return static_cast<const A*>(passed);
          },
          dy, y);
    const auto factors = cpu::norm_factors<A>(vectors);
    const auto* const mean = vectors.mean.data<A>();
    const cpu::PositivePass<A> pass{factors.data(), vectors.beta.data<A>()};
    cpu::sum_norm_gradients<T>(
        dev, x, vectors, sum_dy, sum_dy_xhat,
        [=](std::int64_t, std::int64_t first, std::int64_t count, const A* values, const A* above,
            A* passed) {
          if (!relu) return above;
          for (std::int64_t c = 0; c < count; ++c)
            passed[c] = pass(above[c], values[c] - mean[first + c], first + c);
          return static_cast<const A*>(passed);
        },
        dy);
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
    A *const p = table.data(), *const q = p + columns, *const r = q + columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      p[c] = inv_std[c] * vectors.gamma.data<A>()[c];
      q[c] = -p[c] * inv_std[c] * sum_dy_xhat.data<A>()[c] / static_cast<A>(count);
      r[c] = -p[c] * sum_dy.data<A>()[c] / static_cast<A>(count);
    }
    const auto map = [&](auto pass) {
      const auto gradient = [=, mean = vectors.mean.data<A>()](std::int64_t c, A value, A above) {
        const A deviation = value - mean[c];
        return p[c] * pass(above, deviation, c) + q[c] * deviation + r[c];
      };
      cpu::map_rows<A>(dev, dx.data<T>(), x.rows(), columns, gradient, x.data<T>(), dy.data<T>());
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
