// The kernels of fused residual + dropout + layer normalization. For rows that fit a warp's
// registers, each pass reads two matrices and writes two; a thread draws the random words of its
// elements.
#pragma once

#include <dhp/cuda/dropout.hpp>
#include <dhp/cuda/layer_norm_kernels.hpp>

namespace dhp::cuda {

/// norm.x is the input of dropout.
template <class T>
struct ResidualNormArguments {
  LayerNormArguments<T> norm;
  const T* residual;
  DropoutMask<T> mask;
  T* sum;
};

/// The packs of a row of residual + dropout(x).
template <class T, class Rows, class B>
struct ResidualSum {
  using A = Accumulator<T>;
  static constexpr int n = Rows::n;
  const B& block;
  const typename Rows::template Row<T>& x;
  const typename Rows::template Row<T>& residual;
  const DropoutMask<T>& mask;
  const RandomStream& random;
  std::uint64_t first;  // random index of the row's first element

  constexpr Pack<T, n> operator()(int step) const {
    const auto from = x.get(block, step);
    const auto other = residual.get(block, step);
    Pack<A, n> sum;
    for (int at = 0; at < n; ++at) sum.at[at] = static_cast<A>(from.at[at]);
    mask.template drop<n>(random, first + static_cast<std::uint64_t>(Rows::column(block, step)),
                          sum);
    Pack<T, n> out;
    for (int at = 0; at < n; ++at)
      out.at[at] = static_cast<T>(static_cast<A>(other.at[at]) + sum.at[at]);
    return out;
  }
};

template <class T, class Rows>
struct ResidualNormForward {
  ResidualNormArguments<T> in;

  template <class B>
  constexpr void operator()(B& block) const {
    using Row = typename Rows::template Row<T>;
    const auto random = in.mask.stream();
    const auto columns = in.norm.columns;
    for (auto row = Rows::first(block); row < in.norm.rows; row += Rows::step(block)) {
      const auto at = row * columns;
      // The sum may overwrite x or the residual: a thread writes only what it alone has read.
      const Row x(block, in.norm.x + at, columns), residual(block, in.residual + at, columns);
      const ResidualSum<T, Rows, B> make{block, x, residual, in.mask, random, in.mask.number(row)};
      const Row sum(block, in.sum + at, columns, make);
      normalise_row<Rows>(block, in.norm, row, sum);
    }
  }
};

/// norm.x is the sum, norm.dx the gradient of the residual.
template <class T>
struct ResidualNormBackwardArguments {
  LayerNormBackwardArguments<T> norm;
  DropoutMask<T> mask;
  T* dx;
};

/// Stores the packs of a row, and dropout of them.
template <class T>
struct StoreBoth {
  StoreRounded<T> residual;
  StoreRounded<T> dropped;
  const DropoutMask<T>& mask;
  const RandomStream& random;
  std::uint64_t first;  // random index of the row's first element

  template <class A, int n>
  constexpr void operator()(std::int64_t column, Pack<A, n> pack) const {
    residual(column, pack);
    mask.template drop<n>(random, first + static_cast<std::uint64_t>(column), pack);
    dropped(column, pack);
  }
};

template <class T, class Rows>
struct ResidualNormBackward {
  ResidualNormBackwardArguments<T> in;

  template <class B>
  constexpr void operator()(B& block) const {
    const auto random = in.mask.stream();
    for (auto row = Rows::first(block); row < in.norm.rows; row += Rows::step(block)) {
      const auto at = row * in.norm.columns;
      row_gradient<Rows>(
          block, in.norm, row,
          StoreBoth<T>{{in.norm.dx + at}, {in.dx + at}, in.mask, random, in.mask.number(row)});
    }
  }
};

}  // namespace dhp::cuda
