// The kernels of layer normalization, and code shared with the fused residual form. Rows that fit a
// warp's registers are read once, and the variance still comes from deviations.
#pragma once

#include <dhp/cuda/column_reduce.hpp>
#include <dhp/cuda/row_shares.hpp>

#include <cmath>

namespace dhp::cuda {

template <class T>
struct LayerNormArguments {
  using A = Accumulator<T>;
  std::int64_t rows;
  std::int64_t columns;
  const T* x;
  const A* gamma;
  const A* beta;
  A epsilon;
  T* y;
  A* mean;
  A* inv_std;
};

/// Writes y, mean and inv_std of a row x in registers.
template <class Rows, class B, class T>
constexpr void normalise_row(B& block, const LayerNormArguments<T>& in, std::int64_t row,
                             const typename Rows::template Row<T>& x) {
  using A = Accumulator<T>;
  constexpr int n = Rows::n;
  const int steps = Rows::steps(block, in.columns);
  const A width = static_cast<A>(in.columns);
  A total = 0;
  for (int step = 0; step < steps; ++step) {
    if (Rows::column(block, step) >= in.columns) continue;
    const auto pack = x.get(block, step);
    for (int at = 0; at < n; ++at) total += static_cast<A>(pack.at[at]);
  }
  const A mean = Rows::reduce(block, total) / width;
  total = 0;
  for (int step = 0; step < steps; ++step) {
    if (Rows::column(block, step) >= in.columns) continue;
    const auto pack = x.get(block, step);
    for (int at = 0; at < n; ++at) {
      const A deviation = static_cast<A>(pack.at[at]) - mean;
      total += deviation * deviation;
    }
  }
  const A inv_std = A(1) / std::sqrt(Rows::reduce(block, total) / width + in.epsilon);
  for (int step = 0; step < steps; ++step) {
    const auto column = Rows::column(block, step);
    if (column >= in.columns) continue;
    const auto pack = x.get(block, step);
    const auto gamma = load<n>(in.gamma + column);
    const auto beta = load<n>(in.beta + column);
    Pack<T, n> out;
    for (int at = 0; at < n; ++at)
      out.at[at] = static_cast<T>((static_cast<A>(pack.at[at]) - mean) * inv_std * gamma.at[at] +
                                  beta.at[at]);
    store<n>(in.y + row * in.columns + column, out);
  }
  if (Rows::thread(block) == 0) {
    in.mean[row] = mean;
    in.inv_std[row] = inv_std;
  }
}

template <class T, class Rows>
struct LayerNormForward {
  LayerNormArguments<T> in;

  template <class B>
  constexpr void operator()(B& block) const {
    for (auto row = Rows::first(block); row < in.rows; row += Rows::step(block)) {
      const typename Rows::template Row<T> x(block, in.x + row * in.columns, in.columns);
      normalise_row<Rows>(block, in, row, x);
    }
  }
};

template <class T>
struct LayerNormBackwardArguments {
  using A = Accumulator<T>;
  std::int64_t rows;
  std::int64_t columns;
  const T* dy;
  const T* x;
  const A* gamma;
  const A* mean;
  const A* inv_std;
  T* dx;
};

/// write(column, pack) receives the unrounded gradient of x. It may overwrite dy and x: a thread
/// writes only what it alone has read.
template <class Rows, class B, class T, class Write>
constexpr void row_gradient(B& block, const LayerNormBackwardArguments<T>& in, std::int64_t row,
                            const Write& write) {
  using A = Accumulator<T>;
  constexpr int n = Rows::n;
  const typename Rows::template Row<T> dy(block, in.dy + row * in.columns, in.columns);
  const typename Rows::template Row<T> x(block, in.x + row * in.columns, in.columns);
  const int steps = Rows::steps(block, in.columns);
  const A mean = in.mean[row], inv_std = in.inv_std[row];
  A sum = 0, product = 0;
  for (int step = 0; step < steps; ++step) {
    const auto column = Rows::column(block, step);
    if (column >= in.columns) continue;
    const auto gradient = dy.get(block, step);
    const auto from = x.get(block, step);
    const auto gamma = load<n>(in.gamma + column);
    for (int at = 0; at < n; ++at) {
      const A scaled = static_cast<A>(gradient.at[at]) * gamma.at[at];
      sum += scaled;
      product += scaled * (static_cast<A>(from.at[at]) - mean);
    }
  }
  const A width = static_cast<A>(in.columns);
  const A mean_gradient = Rows::reduce(block, sum) / width;
  const A mean_product = Rows::reduce(block, product) * inv_std / width;
  for (int step = 0; step < steps; ++step) {
    const auto column = Rows::column(block, step);
    if (column >= in.columns) continue;
    const auto gradient = dy.get(block, step);
    const auto from = x.get(block, step);
    const auto gamma = load<n>(in.gamma + column);
    Pack<A, n> out;
    for (int at = 0; at < n; ++at) {
      const A scaled = static_cast<A>(gradient.at[at]) * gamma.at[at];
      const A normalised = (static_cast<A>(from.at[at]) - mean) * inv_std;
      out.at[at] = inv_std * (scaled - mean_gradient - normalised * mean_product);
    }
    write(column, out);
  }
}

/// Stores packs, rounded.
template <class T>
struct StoreRounded {
  T* to;
  template <class A, int n>
  constexpr void operator()(std::int64_t column, const Pack<A, n>& pack) const {
    Pack<T, n> out;
    for (int at = 0; at < n; ++at) out.at[at] = static_cast<T>(pack.at[at]);
    store<n>(to + column, out);
  }
};

template <class T, class Rows>
struct LayerNormBackward {
  LayerNormBackwardArguments<T> in;

  template <class B>
  constexpr void operator()(B& block) const {
    for (auto row = Rows::first(block); row < in.rows; row += Rows::step(block))
      row_gradient<Rows>(block, in, row, StoreRounded<T>{in.dx + row * in.columns});
  }
};

/// The terms of dgamma, dy * (x - mean) * inv_std, and of dbeta, dy.
template <class T>
struct LayerNormSumTerms {
  using Total = Accumulator<T>;
  static constexpr int sums = 2;
  template <int n>
  struct State {
    Pack<Total, n> total[2];
  };
  template <int n>
  struct Loaded {
    Pack<T, n> dy, x;
    Total mean, inv_std;
  };
  const T* dy;
  const T* x;
  std::int64_t columns;
  const Total* mean;
  const Total* inv_std;

  template <int n, class S>
  constexpr void begin(std::int64_t, S&) const {}
  template <int n>
  constexpr Loaded<n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    return {cuda::load<n>(dy + at), cuda::load<n>(x + at), mean[row], inv_std[row]};
  }
  template <int n, class S>
  constexpr void use(std::int64_t, std::int64_t, const Loaded<n>& in, S& state) const {
    for (int at = 0; at < n; ++at) {
      const Total gradient = static_cast<Total>(in.dy.at[at]);
      state.total[0].at[at] += gradient * (static_cast<Total>(in.x.at[at]) - in.mean) * in.inv_std;
      state.total[1].at[at] += gradient;
    }
  }
};
/// dgamma = beta * dgamma + value, dbeta likewise; with beta 0 they are not read.
template <class A>
struct AddLayerNormSums {
  A* dgamma;
  A* dbeta;
  double beta;
  constexpr void operator()(int sum, std::int64_t column, double value) const {
    AddColumn<A>{sum == 0 ? dgamma : dbeta, beta}(0, column, value);
  }
};

}  // namespace dhp::cuda
