// The kernels of batch normalisation: sums by column, and maps that read what is per column once a thread.
#pragma once

#include <dhp/cuda/column_reduce.hpp>

namespace dhp::cuda {

/// A row's share of a thread in two matrices.
template <class T, int n>
struct TwoPacks {
  Pack<T, n> dy;
  Pack<T, n> x;
};

/// The sums of dy and of dy * (x - mean).
template <class T>
struct BatchNormGradientTerms {
  using Total = Accumulator<T>;
  static constexpr int sums = 2;
  template <int n>
  struct State {
    Pack<Total, n> total[2];
    Pack<Total, n> mean;
  };
  const T* dy;
  const T* x;
  std::int64_t columns;
  const Total* mean;

  template <int n, class S>
  constexpr void begin(std::int64_t column, S& state) const {
    state.mean = cuda::load<n>(mean + column);
  }
  template <int n>
  constexpr TwoPacks<T, n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    return {cuda::load<n>(dy + at), cuda::load<n>(x + at)};
  }
  template <int n, class S>
  constexpr void use(std::int64_t, std::int64_t, const TwoPacks<T, n>& in, S& state) const {
    for (int at = 0; at < n; ++at) {
      const Total gradient = static_cast<Total>(in.dy.at[at]);
      state.total[0].at[at] += gradient;
      state.total[1].at[at] += gradient * (static_cast<Total>(in.x.at[at]) - state.mean.at[at]);
    }
  }
};
template <class A>
struct FinishGradientSums {
  const A* inv_std;
  A* sum_dy;
  A* sum_dy_xhat;
  constexpr void operator()(int sum, std::int64_t column, double value) const {
    if (sum == 0) sum_dy[column] = static_cast<A>(value);
    else sum_dy_xhat[column] = static_cast<A>(value * static_cast<double>(inv_std[column]));
  }
};

/// y = (x - mean) * (inv_std * gamma) + beta. The mean is subtracted first: folded into the shift, it would
/// cost digits where it is large.
template <class T>
struct BatchNormApply {
  using A = Accumulator<T>;
  template <int n>
  struct State {
    Pack<A, n> mean, factor, shift;
  };
  std::int64_t columns;
  const T* x;
  const A* mean;
  const A* inv_std;
  const A* gamma;
  const A* beta;
  bool relu;
  T* y;

  template <int n, class S>
  constexpr void begin(std::int64_t column, S& state) const {
    state.mean = cuda::load<n>(mean + column);
    state.factor = cuda::load<n>(inv_std + column);
    const auto scale = cuda::load<n>(gamma + column);
    for (int at = 0; at < n; ++at) state.factor.at[at] *= scale.at[at];
    state.shift = cuda::load<n>(beta + column);
  }
  template <int n>
  constexpr Pack<T, n> load(std::int64_t row, std::int64_t column) const {
    return cuda::load<n>(x + row * columns + column);
  }
  template <int n, class S>
  constexpr void use(std::int64_t row, std::int64_t column, const Pack<T, n>& in,
                     const S& state) const {
    Pack<T, n> out;
    for (int at = 0; at < n; ++at) {
      const A value = (static_cast<A>(in.at[at]) - state.mean.at[at]) * state.factor.at[at] +
                      state.shift.at[at];
      out.at[at] = static_cast<T>(relu && value < A(0) ? A(0) : value);
    }
    cuda::store<n>(y + row * columns + column, out);
  }
};

/// dx = p dy + q (x - mean) + r, with p, q, r per column.
template <class T>
struct BatchNormBackwardApply {
  using A = Accumulator<T>;
  template <int n>
  struct State {
    Pack<A, n> mean, p, q, r;
  };
  std::int64_t columns;
  const T* dy;
  const T* x;
  const A* mean;
  const A* inv_std;
  const A* gamma;
  const A* sum_dy;
  const A* sum_dy_xhat;
  A inverse_count;
  T* dx;

  template <int n, class S>
  constexpr void begin(std::int64_t column, S& state) const {
    state.mean = cuda::load<n>(mean + column);
    state.p = cuda::load<n>(gamma + column);
    state.q = cuda::load<n>(sum_dy_xhat + column);
    state.r = cuda::load<n>(sum_dy + column);
    const auto scale = cuda::load<n>(inv_std + column);
    for (int at = 0; at < n; ++at) {
      const A p = state.p.at[at] * scale.at[at];
      state.p.at[at] = p;
      state.q.at[at] *= -p * scale.at[at] * inverse_count;
      state.r.at[at] *= -p * inverse_count;
    }
  }
  template <int n>
  constexpr TwoPacks<T, n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    return {cuda::load<n>(dy + at), cuda::load<n>(x + at)};
  }
  template <int n, class S>
  constexpr void use(std::int64_t row, std::int64_t column, const TwoPacks<T, n>& in,
                     const S& state) const {
    Pack<T, n> out;
    for (int at = 0; at < n; ++at)
      out.at[at] = static_cast<T>(
          state.p.at[at] * static_cast<A>(in.dy.at[at]) +
          state.q.at[at] * (static_cast<A>(in.x.at[at]) - state.mean.at[at]) + state.r.at[at]);
    cuda::store<n>(dx + row * columns + column, out);
  }
};

}  // namespace dhp::cuda
