// The kernels of layer normalization. Rows that fit a warp's registers are read only once, although the variance is
// computed from deviations.
#pragma once

#include <dhp/cuda/column_reduce.hpp>
#include <dhp/cuda/dropout.hpp>
#include <dhp/cuda/row_shares.hpp>

#include <cmath>

namespace dhp::detail::cuda {

/// If beta and mean are null, rows are normalized by their root mean square.
template <class T>
struct LayerNormArguments {
  using A = Accumulator<T>;
  std::int64_t rows, columns;
  const T* x;
  const A *gamma, *beta;
  A epsilon;
  T* y;
  A *mean, *inv_std;
};

/// Writes y, mean and inv_std of a row x.
template <class Rows, class B, class T>
constexpr void normalize_row(B& block, const LayerNormArguments<T>& in, std::int64_t row,
                             const typename Rows::template Row<T>& x) {
  using A = Accumulator<T>;
  constexpr int n = Rows::n;
  const int steps = Rows::steps(block, in.columns);
  const A width = static_cast<A>(in.columns);
  A total = 0, mean = 0;
  if (in.mean != nullptr) {
    for (int step = 0; step < steps; ++step) {
      if (Rows::column(block, step) >= in.columns) continue;
      const auto pack = x.get(block, step);
      for (int at = 0; at < n; ++at) total += static_cast<A>(pack.at[at]);
    }
    mean = Rows::reduce(block, total) / width;
    total = 0;
  }
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
    const auto beta = in.beta == nullptr ? Pack<A, n>{} : load<n>(in.beta + column);
    Pack<A, n> out;
    for (int at = 0; at < n; ++at)
      out.at[at] = (static_cast<A>(pack.at[at]) - mean) * inv_std * gamma.at[at] + beta.at[at];
    store_rounded(in.y + row * in.columns + column, out);
  }
  if (Rows::thread(block) == 0) {
    if (in.mean != nullptr) in.mean[row] = mean;
    in.inv_std[row] = inv_std;
  }
}

template <class T, class Rows>
struct LayerNormForward {
  LayerNormArguments<T> in;

  constexpr void operator()(auto& block) const {
    for (auto row = Rows::first(block); row < in.rows; row += Rows::step(block)) {
      const typename Rows::template Row<T> x(block, in.x + row * in.columns, in.columns);
      normalize_row<Rows>(block, in, row, x);
    }
  }
};

template <class T>
struct LayerNormBackwardArguments {
  using A = Accumulator<T>;
  std::int64_t rows, columns;
  const T *dy, *x;
  const A *gamma, *mean, *inv_std;
  T* dx;
  A* parts = nullptr;  ///< sums of dgamma and dbeta [blocks, 2, columns], for rows in registers
};

/// A thread's sums over its rows: dy * xhat for dgamma, dy for dbeta. Rows too long for registers have a separate pass.
template <class T, class Rows, bool = Rows::in_registers>
struct NormSums {
  using A = Accumulator<T>;
  static constexpr int n = Rows::n;
  Pack<A, n> gamma[Rows::max_packs]{};
  Pack<A, n> beta[Rows::max_packs]{};

  constexpr void add(int step, const Pack<T, n>& dy, const Pack<T, n>& x, A mean, A inv_std) {
    for (int at = 0; at < n; ++at) {
      const A gradient = static_cast<A>(dy.at[at]);
      gamma[step].at[at] += gradient * (static_cast<A>(x.at[at]) - mean) * inv_std;
      beta[step].at[at] += gradient;
    }
  }
  /// Sums over the block's warps, in shared memory with one row of 2 * columns for each warp.
  constexpr void finish(auto& block, std::int64_t columns, A* parts) const {
    const int width = static_cast<int>(2 * columns);
    A* const slots = block.template shared<A>();
    A* const own = slots + block.thread() / warp_size * width;
    for (int step = 0; step < Rows::max_packs; ++step) {
      const auto column = Rows::column(block, step);
      if (column >= columns) continue;
      store<n>(own + column, gamma[step]);
      store<n>(own + columns + column, beta[step]);
    }
    block.sync();
    for (int at = block.thread(); at < width; at += block.threads()) {
      A total = slots[at];
      for (int warp = 1; warp < block.threads() / warp_size; ++warp)
        total += slots[warp * width + at];
      parts[block.index() * width + at] = total;
    }
  }
};
template <class T, class Rows>
struct NormSums<T, Rows, false> {
  using A = Accumulator<T>;
  constexpr void add(int, const auto&, const auto&, A, A) {}
  constexpr void finish(auto&, std::int64_t, A*) const {}
};

/// Calls write(column, pack) with the unrounded gradient of x. write may overwrite dy and x: a thread writes only
/// elements that it alone has read.
template <class Rows, class B, class T, class Write>
constexpr void row_gradient(B& block, const LayerNormBackwardArguments<T>& in, std::int64_t row,
                            NormSums<T, Rows>& sums, const Write& write) {
  using A = Accumulator<T>;
  constexpr int n = Rows::n;
  const typename Rows::template Row<T> dy(block, in.dy + row * in.columns, in.columns);
  const typename Rows::template Row<T> x(block, in.x + row * in.columns, in.columns);
  const int steps = Rows::steps(block, in.columns);
  const bool centers = in.mean != nullptr;
  const A mean = centers ? in.mean[row] : A(0), inv_std = in.inv_std[row];
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
    sums.add(step, gradient, from, mean, inv_std);
  }
  const A width = static_cast<A>(in.columns);
  const A mean_gradient = centers ? Rows::reduce(block, sum) / width : A(0);
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
      const A normalized = (static_cast<A>(from.at[at]) - mean) * inv_std;
      out.at[at] = inv_std * (scaled - mean_gradient - normalized * mean_product);
    }
    write(column, out);
  }
}

template <class T, class Rows>
struct LayerNormBackward {
  LayerNormBackwardArguments<T> in;

  constexpr void operator()(auto& block) const {
    NormSums<T, Rows> sums;
    for (auto row = Rows::first(block); row < in.rows; row += Rows::step(block))
      row_gradient<Rows>(block, in, row, sums, [&](std::int64_t column, const auto& pack) {
        store_rounded(in.dx + row * in.columns + column, pack);
      });
    sums.finish(block, in.columns, in.parts);
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
  const T *dy, *x;
  std::int64_t columns;
  const Total *mean, *inv_std;

  template <int n>
  constexpr Loaded<n> load(std::int64_t row, std::int64_t column) const {
    const auto at = row * columns + column;
    return {cuda::load<n>(dy + at), cuda::load<n>(x + at), mean == nullptr ? Total(0) : mean[row],
            inv_std[row]};
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
/// Sets x = beta * x + value, where x is dgamma or dbeta; dbeta may be null. With beta 0, x is not read.
template <class A>
struct AddLayerNormSums {
  A *dgamma, *dbeta;
  double beta;
  constexpr void operator()(int sum, std::int64_t column, double value) const {
    A* const to = sum == 0 ? dgamma : dbeta;
    if (to != nullptr) AddColumn<A>{to, beta}(0, column, value);
  }
};

// Fused residual + dropout + layer normalization. For rows that fit a warp's registers, each pass reads two matrices
// and writes two. Each thread draws the random numbers of its own elements.

/// x is the input of dropout.
template <class T>
struct ResidualNormArguments : LayerNormArguments<T> {
  const T* residual;
  DropoutMask<T> mask;
  T* sum;
};

template <class T, class Rows>
struct ResidualNormForward {
  ResidualNormArguments<T> in;

  constexpr void operator()(auto& block) const {
    using A = Accumulator<T>;
    using Row = typename Rows::template Row<T>;
    constexpr int n = Rows::n;
    const auto random = in.mask.random.loaded();
    for (auto row = Rows::first(block); row < in.rows; row += Rows::step(block)) {
      const auto at = row * in.columns;
      // The sum may overwrite x or the residual: a thread writes only elements that it alone has read.
      const Row x(block, in.x + at, in.columns), residual(block, in.residual + at, in.columns);
      const auto first = in.mask.number(row);  // random index of the row's first element
      const Row sum(block, in.sum + at, in.columns, [&](int step) {
        const auto from = x.get(block, step);
        const auto other = residual.get(block, step);
        Pack<A, n> total;
        for (int i = 0; i < n; ++i) total.at[i] = static_cast<A>(from.at[i]);
        const auto column = static_cast<std::uint64_t>(Rows::column(block, step));
        in.mask.template drop<n>(random, first + column, total);
        Pack<T, n> out;
        for (int i = 0; i < n; ++i)
          out.at[i] = static_cast<T>(static_cast<A>(other.at[i]) + total.at[i]);
        return out;
      });
      normalize_row<Rows>(block, in, row, sum);
    }
  }
};

/// x is residual + dropout(x); dx is the gradient of the residual, dropped_dx that of dropout's input.
template <class T>
struct ResidualNormBackwardArguments : LayerNormBackwardArguments<T> {
  DropoutMask<T> mask;
  T* dropped_dx;
};

template <class T, class Rows>
struct ResidualNormBackward {
  ResidualNormBackwardArguments<T> in;

  constexpr void operator()(auto& block) const {
    const auto random = in.mask.random.loaded();
    NormSums<T, Rows> sums;
    for (auto row = Rows::first(block); row < in.rows; row += Rows::step(block)) {
      const auto at = row * in.columns;
      const auto first = in.mask.number(row);  // random index of the row's first element
      row_gradient<Rows>(block, in, row, sums, [&](std::int64_t column, auto pack) {
        store_rounded(in.dx + at + column, pack);
        in.mask.template drop<Rows::n>(random, first + static_cast<std::uint64_t>(column), pack);
        store_rounded(in.dropped_dx + at + column, pack);
      });
    }
    sums.finish(block, in.columns, in.parts);
  }
};

/// The most blocks that sum rows: two for each multiprocessor of an H200, and the same on every GPU.
inline constexpr std::int64_t max_norm_parts = 264;

/// Launches a gradient kernel and passes the sums of dgamma and dbeta to `finish`; rows in registers need one pass.
template <template <class T, class Rows> class Kernel, class T, KernelDevice Dev, class Arguments,
          class... Element>
void launch_norm_gradient(Dev& dev, Arguments in, const AddLayerNormSums<Accumulator<T>>& finish,
                          const Element*... pointers) {
  using A = Accumulator<T>;
  const auto rows = in.rows, columns = in.columns;
  const auto sum_apart = [&] {
    reduce_columns<T>(dev, rows, columns,
                      LayerNormSumTerms<T>{in.dy, in.x, columns, in.mean, in.inv_std}, finish,
                      in.dy, in.x);
  };
  if (rows == 0 || columns == 0) return sum_apart();
  with_rows<T>(
      columns,
      [&]<class Rows>(Rows) {
        if constexpr (Rows::in_registers) {
          constexpr int threads = 128, warps = threads / warp_size;
          const auto blocks =
              std::clamp<std::int64_t>((rows + warps - 1) / warps, 1, max_norm_parts);
          Tensor<Dev> parts(dev, dtype_of<A>(), {blocks, 2, columns});
          in.parts = parts.mut().template data<A>();
          launch(dev, {blocks, threads, as_size(warps * 2 * columns) * sizeof(A)},
                 Kernel<T, Rows>{in});
          reduce_parts<2>(dev, blocks, columns, static_cast<const A*>(in.parts), finish);
        } else {
          sum_apart();  // first, because the next kernel may write dx over dy
          launch(dev, Rows::template grid<A>(dev, rows, columns), Kernel<T, Rows>{in});
        }
      },
      pointers...);
}

}  // namespace dhp::detail::cuda
