// Softmax on the GPU: a warp for a short row, a block for a long one. The maximum and the sum are
// found in one reading, the sum being rescaled whenever the maximum grows (Milakov & Gimelshein
// 2018, section 3); the second reading mostly comes from the caches.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/softmax.hpp>

#include <cmath>
#include <limits>

namespace dhp::cuda {

/// The threads that share a row: a warp, or a block.
template <bool whole_block>
struct RowTeam {
  /// Rows are dealt to teams in turn.
  template <class B>
  [[nodiscard]] static constexpr std::int64_t first_row(const B& block) {
    return whole_block ? block.index() : grid_thread(block) / warp_size;
  }
  template <class B>
  [[nodiscard]] static constexpr std::int64_t teams(const B& block) {
    return whole_block ? block.blocks() : grid_threads(block) / warp_size;
  }
  template <class B>
  [[nodiscard]] static constexpr std::int64_t member(const B& block) {
    return whole_block ? block.thread() : block.thread() % warp_size;
  }
  template <class B>
  [[nodiscard]] static constexpr std::int64_t members(const B& block) {
    return whole_block ? block.threads() : warp_size;
  }
  template <class A, class B, class Op = Plus>
  [[nodiscard]] static constexpr A reduce(B& block, A value, Op op = {}) {
    if constexpr (whole_block) return block_reduce(block, value, block.template shared<A>(), op);
    else return warp_reduce(block, value, op);
  }
};

template <class T, int width, bool whole_block>
struct SoftmaxForward {
  using A = Accumulator<T>;
  using Team = RowTeam<whole_block>;
  std::int64_t rows;
  std::int64_t columns;
  const T* x;
  T* y;

  template <class B>
  constexpr void operator()(B& block) const {
    constexpr A lowest = -std::numeric_limits<A>::infinity();
    const auto step = Team::members(block) * width;
    for (auto row = Team::first_row(block); row < rows; row += Team::teams(block)) {
      const T* const from = x + row * columns;
      T* const to = y + row * columns;
      A most = lowest;
      A sum = A(0);  // of exp(x - most) so far
      for (auto at = Team::member(block) * width; at < columns; at += step) {
        const auto in = load<width>(from + at);
        A here = static_cast<A>(in.at[0]);
        for (int i = 1; i < width; ++i) here = Largest{}(here, static_cast<A>(in.at[i]));
        if (here > most) {
          sum *= std::exp(most - here);
          most = here;
        }
        // Nothing but -inf so far counts as nothing: its NaN would spoil rows masked in part.
        const A offset = most == lowest ? A(0) : most;
        for (int i = 0; i < width; ++i) sum += std::exp(static_cast<A>(in.at[i]) - offset);
      }
      const A top = Team::template reduce<A>(block, most, Largest{});
      const A total =
          Team::template reduce<A>(block, most == lowest ? sum : sum * std::exp(most - top));
      const A inverse = A(1) / total;
      for (auto at = Team::member(block) * width; at < columns; at += step) {
        const auto in = load<width>(from + at);
        Pack<T, width> out;
        for (int i = 0; i < width; ++i)
          out.at[i] = static_cast<T>(std::exp(static_cast<A>(in.at[i]) - top) * inverse);
        store<width>(to + at, out);
      }
    }
  }
};

template <class T, int width, bool whole_block>
struct SoftmaxBackward {
  using A = Accumulator<T>;
  using Team = RowTeam<whole_block>;
  std::int64_t rows;
  std::int64_t columns;
  const T* y;
  const T* dy;
  T* dx;

  template <class B>
  constexpr void operator()(B& block) const {
    const auto step = Team::members(block) * width;
    for (auto row = Team::first_row(block); row < rows; row += Team::teams(block)) {
      const auto start = row * columns;
      A part = A(0);
      for (auto at = Team::member(block) * width; at < columns; at += step) {
        const auto power = load<width>(y + start + at);
        const auto gradient = load<width>(dy + start + at);
        for (int i = 0; i < width; ++i)
          part += static_cast<A>(power.at[i]) * static_cast<A>(gradient.at[i]);
      }
      const A inner = Team::template reduce<A>(block, part);
      for (auto at = Team::member(block) * width; at < columns; at += step) {
        const auto power = load<width>(y + start + at);
        const auto gradient = load<width>(dy + start + at);
        Pack<T, width> out;
        for (int i = 0; i < width; ++i)
          out.at[i] = static_cast<T>(static_cast<A>(power.at[i]) *
                                     (static_cast<A>(gradient.at[i]) - inner));
        store<width>(dx + start + at, out);
      }
    }
  }
};

/// Launches Kernel<T, width, whole_block> on rows that lie at `pointers`, its last arguments.
template <template <class, int, bool> class Kernel, class T, KernelDevice Dev, class... P>
void softmax_rows(Dev& dev, std::int64_t rows, std::int64_t columns, P*... pointers) {
  if (rows * columns == 0) return;
  constexpr std::int64_t packs_a_warp = 8;  // longer rows want more threads
  const auto of_width = [&]<int width>(std::integral_constant<int, width>) {
    const auto packs = columns / width;
    if (packs <= packs_a_warp * warp_size) {
      launch(dev, grid_for(rows * warp_size), Kernel<T, width, false>{rows, columns, pointers...});
    } else {
      const int threads = packs <= 2048 ? 256 : 1024;
      const Grid grid{std::min<std::int64_t>(rows, 132 * 16), threads,
                      block_reduce_scratch * sizeof(Accumulator<T>)};
      launch(dev, grid, Kernel<T, width, true>{rows, columns, pointers...});
    }
  };
  if (packs_fit<pack_size<T>>(columns, pointers...))
    of_width(std::integral_constant<int, pack_size<T>>{});
  else of_width(std::integral_constant<int, 1>{});
}

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
void softmax_forward_on(Dev& dev, ConstView<Dev> x, View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    cuda::softmax_rows<cuda::SoftmaxForward, T>(dev, x.rows(), x.columns(), x.template data<T>(),
                                                y.template data<T>());
  });
}
template <KernelDevice Dev>
void softmax_backward_on(Dev& dev, ConstView<Dev> y, ConstView<Dev> dy, View<Dev> dx) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cuda::softmax_rows<cuda::SoftmaxBackward, T>(dev, y.rows(), y.columns(), y.template data<T>(),
                                                 dy.template data<T>(), dx.template data<T>());
  });
}

}  // namespace dhp
