// Batch normalization, by column sums and by maps whose threads read the per-column vectors only once.
#pragma once

#include <dhp/cuda/column_reduce.hpp>
#include <dhp/ops/batch_norm.hpp>

namespace dhp::detail::cuda {

/// ReLU's mask of dy: none, or the signs of the recomputed output (value) or of the stored output y (result).
enum class NormGate { none, value, result };

template <class A>
struct NormVectors {
  const A *mean, *inv_std, *gamma, *beta;
};

/// A thread's columns of the per-column vectors, for normalizing values. The mean is subtracted first, because folding
/// it into the shift would lose digits.
template <class A, int n>
struct NormState {
  Pack<A, n> mean, factor, shift;

  constexpr void begin(const NormVectors<A>& vectors, std::int64_t column) {
    mean = cuda::load<n>(vectors.mean + column);
    factor = cuda::load<n>(vectors.inv_std + column);
    const auto scale = cuda::load<n>(vectors.gamma + column);
    for (int at = 0; at < n; ++at) factor.at[at] *= scale.at[at];
    shift = cuda::load<n>(vectors.beta + column);
  }
  [[nodiscard]] constexpr A value(A deviation, int at) const {
    return deviation * factor.at[at] + shift.at[at];
  }
};
/// Only the mean of a thread's columns, for kernels that do not recompute the output.
template <class A, int n>
struct MeanState {
  Pack<A, n> mean;
  constexpr void begin(const NormVectors<A>& vectors, std::int64_t column) {
    mean = cuda::load<n>(vectors.mean + column);
  }
};
template <class A, int n, NormGate gate>
using GateState = std::conditional_t<gate == NormGate::value, NormState<A, n>, MeanState<A, n>>;

/// Returns dy, masked if the gate is `value`.
template <NormGate gate, class A, class State>
[[nodiscard]] constexpr A pass(A dy, A deviation, const State& state, int at) {
  if constexpr (gate == NormGate::value) return state.value(deviation, at) > A(0) ? dy : A(0);
  else return dy;
}

/// A thread's pack of one row, from each of `count` matrices.
template <class T, int n, int count>
struct Packs {
  Pack<T, n> of[count];
};

/// Computes y = (x - mean) * (inv_std * gamma) + beta, plus the residual if `adds`, and its ReLU if `relu`.
template <class T, bool adds>
struct BatchNormApply {
  using A = Accumulator<T>;
  template <int n>
  using State = NormState<A, n>;
  template <int n>
  using Loaded = Packs<T, n, adds ? 2 : 1>;
  std::int64_t columns;
  const T* x;
  NormVectors<A> vectors;
  const T* residual;
  bool relu;
  T* y;

  template <int n, class S>
  constexpr void begin(std::int64_t column, S& state) const {
    state.begin(vectors, column);
  }
  template <int n>
  constexpr Loaded<n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    if constexpr (adds) return {{cuda::load<n>(x + at), cuda::load<n>(residual + at)}};
    else return {{cuda::load<n>(x + at)}};
  }
  template <int n, class S>
  constexpr void use(std::int64_t row, std::int64_t column, const Loaded<n>& in,
                     const S& state) const {
    Pack<T, n> out;
    for (int at = 0; at < n; ++at) {
      A value = state.value(static_cast<A>(in.of[0].at[at]) - state.mean.at[at], at);
      if constexpr (adds) value += static_cast<A>(in.of[1].at[at]);
      out.at[at] = static_cast<T>(relu && value < A(0) ? A(0) : value);
    }
    cuda::store<n>(y + row * columns + column, out);
  }
};

/// Sums dy and dy * (x - mean), with dy masked by the gate. The gate `result` also stores the masked dy, which may
/// overwrite dy.
template <class T, NormGate gate>
struct BatchNormGradientTerms {
  using Total = Accumulator<T>;
  static constexpr int sums = 2;
  static constexpr bool stores = gate == NormGate::result;
  template <int n>
  struct State {
    Pack<Total, n> total[2];
    GateState<Total, n, gate> norm;
  };
  template <int n>
  using Loaded = Packs<T, n, stores ? 3 : 2>;
  const T *dy, *x;
  std::int64_t columns;
  NormVectors<Total> vectors;
  const T* y;
  T* passed;

  template <int n, class S>
  constexpr void begin(std::int64_t column, S& state) const {
    state.norm.begin(vectors, column);
  }
  template <int n>
  constexpr Loaded<n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    if constexpr (stores)
      return {{cuda::load<n>(dy + at), cuda::load<n>(x + at), cuda::load<n>(y + at)}};
    else return {{cuda::load<n>(dy + at), cuda::load<n>(x + at)}};
  }
  template <int n, class S>
  constexpr void use(std::int64_t row, std::int64_t column, const Loaded<n>& in, S& state) const {
    Pack<T, n> through = in.of[0];
    if constexpr (stores) {
      for (int at = 0; at < n; ++at)
        if (!(static_cast<Total>(in.of[2].at[at]) > Total(0)))
          through.at[at] = static_cast<T>(Total(0));
      cuda::store<n>(passed + row * columns + column, through);
    }
    for (int at = 0; at < n; ++at) {
      const Total deviation = static_cast<Total>(in.of[1].at[at]) - state.norm.mean.at[at];
      const Total gradient =
          pass<gate>(static_cast<Total>(through.at[at]), deviation, state.norm, at);
      state.total[0].at[at] += gradient;
      state.total[1].at[at] += gradient * deviation;
    }
  }
};
template <class A>
struct FinishGradientSums {
  const A* inv_std;
  A *sum_dy, *sum_dy_xhat;
  constexpr void operator()(int sum, std::int64_t column, double value) const {
    if (sum == 0) sum_dy[column] = static_cast<A>(value);
    else sum_dy_xhat[column] = static_cast<A>(value * static_cast<double>(inv_std[column]));
  }
};

/// Computes dx = p dy + q (x - mean) + r with per-column p, q and r. The gate masks dy. dx may alias dy.
template <class T, NormGate gate>
struct BatchNormBackwardApply {
  using A = Accumulator<T>;
  template <int n>
  struct State {
    GateState<A, n, gate> norm;
    Pack<A, n> p, q, r;
  };
  template <int n>
  using Loaded = Packs<T, n, 2>;
  std::int64_t columns;
  const T *dy, *x;
  NormVectors<A> vectors;
  const A *sum_dy, *sum_dy_xhat;
  A inverse_count;
  T* dx;

  template <int n, class S>
  constexpr void begin(std::int64_t column, S& state) const {
    state.norm.begin(vectors, column);
    state.p = cuda::load<n>(vectors.gamma + column);
    state.q = cuda::load<n>(sum_dy_xhat + column);
    state.r = cuda::load<n>(sum_dy + column);
    const auto scale = cuda::load<n>(vectors.inv_std + column);
    for (int at = 0; at < n; ++at) {
      const A p = state.p.at[at] * scale.at[at];
      state.p.at[at] = p;
      state.q.at[at] *= -p * scale.at[at] * inverse_count;
      state.r.at[at] *= -p * inverse_count;
    }
  }
  template <int n>
  constexpr Loaded<n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    return {{cuda::load<n>(dy + at), cuda::load<n>(x + at)}};
  }
  template <int n, class S>
  constexpr void use(std::int64_t row, std::int64_t column, const Loaded<n>& in,
                     const S& state) const {
    Pack<T, n> out;
    for (int at = 0; at < n; ++at) {
      const A deviation = static_cast<A>(in.of[1].at[at]) - state.norm.mean.at[at];
      const A gradient = pass<gate>(static_cast<A>(in.of[0].at[at]), deviation, state.norm, at);
      out.at[at] =
          static_cast<T>(state.p.at[at] * gradient + state.q.at[at] * deviation + state.r.at[at]);
    }
    cuda::store<n>(dx + row * columns + column, out);
  }
};

/// Converts cuDNN's inv_std = 1 / sqrt(variance + epsilon) to the sum of squared deviations of `rows` values.
struct SquaredDeviations {
  double epsilon, rows;
  constexpr float operator()(float inv_std) const {
    const double root = static_cast<double>(inv_std);
    const double variance = 1 / (root * root) - epsilon;
    return static_cast<float>(variance < 0 ? 0 : variance * rows);  // rounding may give < 0
  }
};

/// Computes a channel's statistics from its sums of x and x^2; one thread works on a channel.
template <class A>
struct StatisticsFromSums {
  std::int64_t channels;
  double rows, epsilon;
  const A* sums;
  A *mean, *inv_std, *squared_deviations;

  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < channels; at += grid_threads(block)) {
      const NormFromSums of(static_cast<double>(sums[at]), static_cast<double>(sums[channels + at]),
                            rows, epsilon);
      mean[at] = static_cast<A>(of.mean);
      inv_std[at] = static_cast<A>(of.inv_std);
      squared_deviations[at] = static_cast<A>(of.squared_deviations);
    }
  }
};

template <class A, class Dev>
[[nodiscard]] NormVectors<A> pointers(const BatchNormVectors<Dev>& vectors) {
  return {vectors.mean.data(), vectors.inv_std.data(), vectors.gamma.data(), vectors.beta.data()};
}

/// Calls body with the gate as an integral_constant.
void with_gate(bool relu, const auto& body) {
  if (relu) body(std::integral_constant<NormGate, NormGate::value>());
  else body(std::integral_constant<NormGate, NormGate::none>());
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void batch_norm_squared_deviations_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> mean,
                                      View<Dev> sum) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::ColumnTerms<T, true> terms{x.data(), x.columns(), mean.data()};
    const cuda::StoreColumn<A> finish{sum.data()};
    cuda::reduce_columns<T>(dev, x.rows(), x.columns(), terms, finish, terms.x, terms.middle);
  });
}
template <KernelDevice Dev>
void batch_norm_apply_on(Dev& dev, ConstView<Dev> x, const BatchNormVectors<Dev>& vectors,
                         ConstView<Dev> residual, bool relu, View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    const auto v = cuda::pointers<Accumulator<T>>(vectors);
    const auto apply = [&]<bool adds>(std::bool_constant<adds>) {
      const cuda::BatchNormApply<T, adds> f{
          x.columns(), x.data(), v, adds ? residual.template data<T>() : nullptr, relu, y.data()};
      cuda::map_columns<T>(dev, x.rows(), x.columns(), f, f.x, v.mean, v.inv_std, v.gamma, v.beta,
                           f.residual, f.y);
    };
    if (residual.empty()) apply(std::false_type());
    else apply(std::true_type());
  });
}
template <KernelDevice Dev>
void batch_norm_backward_sums_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x,
                                 const BatchNormVectors<Dev>& vectors, bool relu, View<Dev> sum_dy,
                                 View<Dev> sum_dy_xhat, ConstView<Dev> y, View<Dev> dresidual) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto v = cuda::pointers<A>(vectors);
    const auto sum = [&]<auto gate>(std::integral_constant<cuda::NormGate, gate>) {
      const cuda::BatchNormGradientTerms<T, gate> terms{
          dy.data(), x.data(), x.columns(), v, data_or_null<T>(y), data_or_null<T>(dresidual)};
      const cuda::FinishGradientSums<A> finish{v.inv_std, sum_dy.data(), sum_dy_xhat.data()};
      cuda::reduce_columns<T>(dev, x.rows(), x.columns(), terms, finish, terms.dy, terms.x, v.mean,
                              v.inv_std, v.gamma, v.beta, terms.y, terms.passed);
    };
    if (y.empty()) cuda::with_gate(relu, sum);
    else sum(std::integral_constant<cuda::NormGate, cuda::NormGate::result>());
  });
}

template <KernelDevice Dev>
void batch_norm_backward_apply_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x,
                                  const BatchNormVectors<Dev>& vectors, bool relu,
                                  ConstView<Dev> sum_dy, ConstView<Dev> sum_dy_xhat, double count,
                                  View<Dev> dx) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto v = cuda::pointers<A>(vectors);
    cuda::with_gate(
        relu, [&]<auto gate>(std::integral_constant<cuda::NormGate, gate>) {
          const cuda::BatchNormBackwardApply<T, gate> f{x.columns(),
                                                        dy.data(),
                                                        x.data(),
                                                        v,
                                                        sum_dy.data(),
                                                        sum_dy_xhat.data(),
                                                        static_cast<A>(1.0 / count),
                                                        dx.data()};
          cuda::map_columns<T>(dev, x.rows(), x.columns(), f, f.dy, f.x, v.mean, v.inv_std, v.gamma,
                               v.beta, f.sum_dy, f.sum_dy_xhat, f.dx);
        });
  });
}

template <KernelDevice Dev>
void batch_norm_from_sums_on(Dev& dev, ConstView<Dev> sums, std::int64_t rows, double epsilon,
                             View<Dev> mean, View<Dev> inv_std, View<Dev> squared_deviations) {
  visit_accumulator(sums.dtype(), [&]<class A>(TypeTag<A>) {
    launch(
        dev, cuda::grid_for(dev, mean.count()),
        cuda::StatisticsFromSums<A>{mean.count(), static_cast<double>(rows), epsilon, sums.data(),
                                    mean.data(), inv_std.data(), squared_deviations.data()});
  });
}

}  // namespace dhp::detail
