// Batch normalization on the Cpu. Statistics are summed in fixed row tiles; tile sums are added in
// double.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/batch_norm.hpp>

namespace dhp::cpu {

/// Gradient mask: all elements pass.
template <class A>
struct AllPass {
  A operator()(A dy, A, std::int64_t) const { return dy; }
};
/// Gradient mask: elements with a positive output pass.
template <class A>
struct PositivePass {
  const A* factor;  ///< inv_std * gamma
  const A* shift;
  A operator()(A dy, A deviation, std::int64_t c) const {
    return deviation * factor[c] + shift[c] > A(0) ? dy : A(0);
  }
};

template <class T>
struct BatchNormKernel {
  using A = Accumulator<T>;
  struct Vectors {
    const A* mean;
    const A* inv_std;
    const A* gamma;
    const A* beta;
    explicit Vectors(const BatchNormVectors<Cpu>& from)
        : mean(from.mean.data<A>()),
          inv_std(from.inv_std.data<A>()),
          gamma(from.gamma.data<A>()),
          beta(from.beta.data<A>()) {}
    /// inv_std * gamma
    [[nodiscard]] std::vector<A> factors(std::int64_t columns) const {
      std::vector<A> made(static_cast<std::size_t>(columns));
      for (std::int64_t c = 0; c < columns; ++c)
        made[static_cast<std::size_t>(c)] = inv_std[c] * gamma[c];
      return made;
    }
  };
  static void sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x, A* sum);
  static void squared_deviations(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                                 const A* mean, A* sum);
  /// residual: null if none.
  static void apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                    const Vectors& vectors, const T* residual, bool relu, T* y);
  static void backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                            const T* x, const Vectors& vectors, bool relu, A* sum_dy,
                            A* sum_dy_xhat);
  static void residual_backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                                     const T* y, const T* x, const Vectors& vectors, T* dresidual,
                                     A* sum_dy, A* sum_dy_xhat);
  static void backward_apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* dy,
                             const T* x, const Vectors& vectors, bool relu, const A* sum_dy,
                             const A* sum_dy_xhat, double count, T* dx);

  static constexpr std::int64_t row_tile = 64;

 private:
  /// Adds `count` columns of a row to the sums of dy and dy * (x - mean).
  template <class Gradient>
  static void add_gradients(std::int64_t count, const Gradient* dy, const T* x, const A* mean,
                            A* sums, A* products) {
    for (std::int64_t c = 0; c < count; ++c) {
      const A gradient = static_cast<A>(dy[c]);
      sums[c] += gradient;
      products[c] += gradient * (static_cast<A>(x[c]) - mean[c]);
    }
  }
  /// Finalizes the sums of add_gradients.
  struct Finish {
    const A* inv_std;
    A* sum_dy;
    A* sum_dy_xhat;
    void operator()(std::int64_t which, std::int64_t c, double value) const {
      if (which == 0) sum_dy[c] = static_cast<A>(value);
      else sum_dy_xhat[c] = static_cast<A>(value * static_cast<double>(inv_std[c]));
    }
  };
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
                               const Vectors& vectors, const T* residual, bool relu, T* y) {
  // Subtract the mean first: folding a large mean into the shift would lose digits.
  const auto factors = vectors.factors(columns);
  const A* factor = factors.data();
  const A *mean = vectors.mean, *shift = vectors.beta;
  // finish(value, at) maps a normalized value to the output.
  const auto map = [&](auto finish) {
    dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        const std::int64_t at = row * columns;
        for (std::int64_t c = 0; c < columns; ++c)
          y[at + c] = static_cast<T>(
              finish((static_cast<A>(x[at + c]) - mean[c]) * factor[c] + shift[c], at + c));
      }
    });
  };
  const auto cut = [](A value) { return value < A(0) ? A(0) : value; };  // NaN stays NaN
  const auto add = [residual](A value, std::int64_t at) {
    return value + static_cast<A>(residual[at]);
  };
  if (residual == nullptr && !relu) map([](A value, std::int64_t) { return value; });
  else if (residual == nullptr) map([=](A value, std::int64_t) { return cut(value); });
  else if (!relu) map(add);
  else map([=](A value, std::int64_t at) { return cut(add(value, at)); });
}

template <class T>
void BatchNormKernel<T>::backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                       const T* dy, const T* x, const Vectors& vectors, bool relu,
                                       A* sum_dy, A* sum_dy_xhat) {
  const Finish finish{vectors.inv_std, sum_dy, sum_dy_xhat};
  const A* mean = vectors.mean;
  if (!relu)
    return reduce_columns<A>(
        dev, rows, columns, 2,
        [=](std::int64_t row, A* totals) {
          const std::int64_t at = row * columns;
          add_gradients(columns, dy + at, x + at, mean, totals, totals + columns);
        },
        finish);
  const auto factors = vectors.factors(columns);
  const PositivePass<A> pass{factors.data(), vectors.beta};
  reduce_columns<A>(
      dev, rows, columns, 2,
      [=](std::int64_t row, A* totals) {
        // The masked gradient goes through a small buffer: one loop over all pointers would not
        // vectorize.
        constexpr std::int64_t block = 128;
        A passed[block];
        for (std::int64_t first = 0; first < columns; first += block) {
          const std::int64_t at = row * columns + first;
          const std::int64_t count = std::min(block, columns - first);
          for (std::int64_t c = 0; c < count; ++c)
            passed[c] = pass(static_cast<A>(dy[at + c]),
                             static_cast<A>(x[at + c]) - mean[first + c], first + c);
          add_gradients(count, passed, x + at, mean + first, totals + first,
                        totals + columns + first);
        }
      },
      finish);
}

template <class T>
void BatchNormKernel<T>::residual_backward_sums(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                                const T* dy, const T* y, const T* x,
                                                const Vectors& vectors, T* dresidual, A* sum_dy,
                                                A* sum_dy_xhat) {
  reduce_columns<A>(
      dev, rows, columns, 2,
      [=, mean = vectors.mean](std::int64_t row, A* totals) {
        const std::int64_t at = row * columns;
        for (std::int64_t c = 0; c < columns; ++c)
          dresidual[at + c] = static_cast<A>(y[at + c]) > A(0) ? dy[at + c] : T(A(0));
        add_gradients(columns, dresidual + at, x + at, mean, totals, totals + columns);
      },
      Finish{vectors.inv_std, sum_dy, sum_dy_xhat});
}

template <class T>
void BatchNormKernel<T>::backward_apply(Cpu& dev, std::int64_t rows, std::int64_t columns,
                                        const T* dy, const T* x, const Vectors& vectors, bool relu,
                                        const A* sum_dy, const A* sum_dy_xhat, double count,
                                        T* dx) {
  // dx = p dy + q (x - mean) + r per column; p is also the forward factor.
  std::vector<A> table(static_cast<std::size_t>(3 * columns));
  A* p = table.data();
  A* q = p + columns;
  A* r = q + columns;
  for (std::int64_t c = 0; c < columns; ++c) {
    p[c] = vectors.inv_std[c] * vectors.gamma[c];
    q[c] = -p[c] * vectors.inv_std[c] * sum_dy_xhat[c] / static_cast<A>(count);
    r[c] = -p[c] * sum_dy[c] / static_cast<A>(count);
  }
  const auto map = [&](auto pass) {
    dev.for_ranges(rows, row_tile, [=, mean = vectors.mean](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        const std::int64_t at = row * columns;
        for (std::int64_t c = 0; c < columns; ++c) {
          const A deviation = static_cast<A>(x[at + c]) - mean[c];
          const A gradient = pass(static_cast<A>(dy[at + c]), deviation, c);
          dx[at + c] = static_cast<T>(p[c] * gradient + q[c] * deviation + r[c]);
        }
      }
    });
  };
  if (relu) map(PositivePass<A>{p, vectors.beta});
  else map(AllPass<A>());
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
inline void batch_norm_apply_on(Cpu& dev, ConstView<Cpu> x, const BatchNormVectors<Cpu>& vectors,
                                ConstView<Cpu> residual, bool relu, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using Kernel = cpu::BatchNormKernel<T>;
    Kernel::apply(dev, x.rows(), x.columns(), x.data<T>(), typename Kernel::Vectors(vectors),
                  residual.empty() ? nullptr : residual.data<T>(), relu, y.data<T>());
  });
}
inline void batch_norm_backward_sums_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                        const BatchNormVectors<Cpu>& vectors, bool relu,
                                        View<Cpu> sum_dy, View<Cpu> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using Kernel = cpu::BatchNormKernel<T>;
    using A = Accumulator<T>;
    Kernel::backward_sums(dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(),
                          typename Kernel::Vectors(vectors), relu, sum_dy.data<A>(),
                          sum_dy_xhat.data<A>());
  });
}
inline void batch_norm_residual_backward_sums_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> y,
                                                 ConstView<Cpu> x,
                                                 const BatchNormVectors<Cpu>& vectors,
                                                 View<Cpu> dresidual, View<Cpu> sum_dy,
                                                 View<Cpu> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using Kernel = cpu::BatchNormKernel<T>;
    using A = Accumulator<T>;
    Kernel::residual_backward_sums(dev, x.rows(), x.columns(), dy.data<T>(), y.data<T>(),
                                   x.data<T>(), typename Kernel::Vectors(vectors),
                                   dresidual.data<T>(), sum_dy.data<A>(), sum_dy_xhat.data<A>());
  });
}
inline void batch_norm_backward_apply_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> x,
                                         const BatchNormVectors<Cpu>& vectors, bool relu,
                                         ConstView<Cpu> sum_dy, ConstView<Cpu> sum_dy_xhat,
                                         double count, View<Cpu> dx) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using Kernel = cpu::BatchNormKernel<T>;
    using A = Accumulator<T>;
    Kernel::backward_apply(dev, x.rows(), x.columns(), dy.data<T>(), x.data<T>(),
                           typename Kernel::Vectors(vectors), relu, sum_dy.data<A>(),
                           sum_dy_xhat.data<A>(), count, dx.data<T>());
  });
}

/// The Cpu has only the unfused ops.
inline std::optional<BatchNormResult<Cpu>> batch_norm_fused_on(Cpu&, ConstView<Cpu>, ConstView<Cpu>,
                                                               ConstView<Cpu>, ConstView<Cpu>,
                                                               double, bool) {
  return {};
}
inline std::optional<BatchNormGradients<Cpu>> batch_norm_fused_backward_on(
    Cpu&, ConstView<Cpu>, ConstView<Cpu>, const BatchNormVectors<Cpu>&, ConstView<Cpu>, bool) {
  return {};
}

}  // namespace dhp
