// Softmax cross-entropy on the GPU: a block works on one row of logits, with 16-byte loads if rows are aligned. A
// kernel cannot throw, so a label outside [-1, classes) gives a NaN loss.
#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/cross_entropy.hpp>

#include <cmath>
#include <limits>
#include <type_traits>

namespace dhp::detail::cuda {

/// A row of logits: `classes` logits, then padding up to `stride`, which is a multiple of the pack's width.
struct LogitRow {
  std::int64_t classes, stride;
};

/// Calls body(element, column) for this thread's elements of a row.
template <int width, class B, class T, class Body>
constexpr void for_row(const B& block, const T* logits, LogitRow row, const Body& body) {
  for (std::int64_t first = block.thread() * width; first < row.classes;
       first += block.threads() * width) {
    const auto pack = load<width>(logits + block.index() * row.stride + first);
    for (int at = 0; at < width; ++at)
      if (first + at < row.classes) body(pack.at[at], first + at);
  }
}

inline constexpr int max_row_threads = 512;

template <class A>
[[nodiscard]] Grid row_grid(std::int64_t rows, std::int64_t columns, int width) {
  const auto packs = (columns + width - 1) / width;
  const int threads = packs <= 32 ? 32 : packs <= 512 ? 128 : max_row_threads;
  return {rows, threads, 3 * block_reduce_scratch * sizeof(A)};
}

template <class T, int width>
struct RowMaximum {
  static constexpr int max_threads = max_row_threads;
  using A = Accumulator<T>;
  LogitRow columns;
  bool onto;
  const T* logits;
  A* max;

  constexpr void operator()(auto& block) const {
    A most = onto && block.thread() == 0 ? max[block.index()] : -std::numeric_limits<A>::infinity();
    const auto larger = [&](T x, std::int64_t) {
      const A value = static_cast<A>(x);
      if (value > most) most = value;
    };
    for_row<width>(block, logits, columns, larger);
    most = block_reduce(block, most, block.template shared<A>(), Largest{});
    if (block.thread() == 0) max[block.index()] = most;
  }
};

template <class T, int width>
struct RowSums {
  static constexpr int max_threads = max_row_threads;
  using A = Accumulator<T>;
  LogitRow columns;
  std::int64_t first_class;
  bool smooth;
  const T* logits;
  const std::int32_t* labels;
  const A* max;
  A* sums;

  constexpr void operator()(auto& block) const {
    const auto row = block.index();
    const auto rows = block.blocks();
    const A most = max[row];
    A powers = 0, below_max = 0;
    const auto add = [&](T x, std::int64_t) {
      const A distance = static_cast<A>(x) - most;
      powers += std::exp(distance);
      below_max += distance;
    };
    for_row<width>(block, logits, columns, add);
    A* const scratch = block.template shared<A>();
    powers = block_reduce(block, powers, scratch);
    if (smooth) below_max = block_reduce(block, below_max, scratch);
    if (block.thread() != 0) return;
    const auto mine = labels[row] - first_class;
    sums[row] = powers;
    sums[rows + row] = mine >= 0 && mine < columns.classes
                           ? static_cast<A>(logits[row * columns.stride + mine])
                           : A(0);
    sums[2 * rows + row] = smooth ? below_max : A(0);
  }
};

template <class A>
struct RowLoss {
  A smoothing;
  std::int64_t classes;
  constexpr A operator()(std::int32_t label, A max, A powers, A wanted, A below_max) const {
    if (label == -1) return A(0);
    if (label < -1 || label >= classes) return std::numeric_limits<A>::quiet_NaN();
    return cross_entropy_of(smoothing, static_cast<A>(classes), max, powers, wanted, below_max);
  }
};

template <class T, int width>
struct RowRank {
  static constexpr int max_threads = max_row_threads;
  using A = Accumulator<T>;
  LogitRow columns;
  std::int64_t first_class;
  bool onto;
  const T* logits;
  const A* sums;
  const std::int32_t* labels;
  std::int32_t* rank;

  constexpr void operator()(auto& block) const {
    const auto row = block.index();
    const A wanted = sums[block.blocks() + row];
    const auto label = labels[row] - first_class;
    int better = onto && block.thread() == 0 ? rank[row] : 0;
    const auto count = [&](T x, std::int64_t column) {
      const A value = static_cast<A>(x);
      // A NaN counts as better, so a row with a NaN is never correct; (value > wanted) would be false for it.
      if (!(value <= wanted) || (value == wanted && column < label)) ++better;
    };
    for_row<width>(block, logits, columns, count);
    better = block_reduce(block, better, block.template shared<int>());
    if (block.thread() == 0) rank[row] = labels[row] < 0 ? 0 : better;
  }
};

template <class T, int width>
struct RowGradient {
  static constexpr int max_threads = max_row_threads;
  using A = Accumulator<T>;
  LogitRow columns;
  std::int64_t first_class;
  double smoothing, classes;
  const T* logits;
  const A *max, *sums;
  const std::int32_t* labels;
  const double* scale;
  T* dlogits;

  constexpr void operator()(auto& block) const {
    const auto row = block.index();
    const bool counts = labels[row] >= 0;
    const A factor = static_cast<A>(*scale) / sums[row];
    const A on_all = static_cast<A>(*scale * smoothing / classes);
    const A on_label = static_cast<A>(*scale * (1 - smoothing));
    const A most = max[row];
    const auto label = labels[row] - first_class;
    for (std::int64_t first = block.thread() * width; first < columns.stride;
         first += block.threads() * width) {
      const auto x = load<width>(logits + row * columns.stride + first);
      Pack<T, width> out{};
      for (int at = 0; at < width; ++at) {
        const A all = factor * std::exp(static_cast<A>(x.at[at]) - most) - on_all;
        const A value = first + at == label ? all - on_label : all;
        out.at[at] = static_cast<T>(counts && first + at < columns.classes ? value : A(0));
      }
      store<width>(dlogits + row * columns.stride + first, out);
    }
  }
};

/// Computes the four totals of cross_entropy_totals() in one block.
template <class A>
struct LossTotals {
  static constexpr int max_threads = 1024;
  std::int64_t rows;
  const A* loss;
  const std::int32_t* labels;
  const std::int32_t* rank;  ///< may be null
  double* totals;

  constexpr void operator()(auto& block) const {
    double sum = 0, counted = 0, first = 0, in_five = 0;
    for (std::int64_t row = block.thread(); row < rows; row += block.threads()) {
      sum += static_cast<double>(loss[row]);
      if (labels[row] < 0) continue;
      counted += 1;
      if (rank == nullptr) continue;
      first += rank[row] == 0 ? 1 : 0;
      in_five += rank[row] < 5 ? 1 : 0;
    }
    double* const scratch = block.template shared<double>();
    sum = block_reduce(block, sum, scratch);
    counted = block_reduce(block, counted, scratch);
    first = block_reduce(block, first, scratch);
    in_five = block_reduce(block, in_five, scratch);
    if (block.thread() != 0) return;
    totals[0] = sum;
    totals[1] = counted;
    totals[2] = first;
    totals[3] = in_five;
  }
};

/// Launches Kernel<T, width>{LogitRow, arguments...} on the rows of the logits, with the widest packs that the logits
/// and the output `out` allow. Logits without columns are allowed.
template <template <class, int> class Kernel, class T, KernelDevice Dev, class... Arguments>
void launch_rows(Dev& dev, std::int64_t rows, ConstView<Dev> logits,
                 const CrossEntropyOptions& options, const T* out, Arguments... arguments) {
  const LogitRow row{options.classes_of(logits.shape()), logits.columns()};
  if (rows == 0) return;
  const auto with = [&]<int width>(std::integral_constant<int, width>) {
    launch(dev, row_grid<Accumulator<T>>(rows, row.stride, width),
           Kernel<T, width>{row, arguments...});
  };
  with_width<pack_size<T>, 2, 1>(row.stride, with, logits.template data<T>(), out);
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void cross_entropy_max_on(Dev& dev, ConstView<Dev> logits, const CrossEntropyOptions& options,
                          View<Dev> max) {
  visit_floating(logits.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const x = logits.data();
    cuda::launch_rows<cuda::RowMaximum, T>(dev, max.count(), logits, options, x, options.onto, x,
                                           max.template data<Accumulator<T>>());
  });
}
template <KernelDevice Dev>
void cross_entropy_sums_on(Dev& dev, ConstView<Dev> logits, ConstView<Dev> labels,
                           ConstView<Dev> max, const CrossEntropyOptions& options, View<Dev> sums) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const T* const x = logits.data();
    cuda::launch_rows<cuda::RowSums, T>(
        dev, max.count(), logits, options, x, options.first_class, options.smoothing != 0, x,
        labels.template data<std::int32_t>(), max.template data<A>(), sums.template data<A>());
  });
}
template <KernelDevice Dev>
void cross_entropy_loss_on(Dev& dev, ConstView<Dev> max, ConstView<Dev> sums, ConstView<Dev> labels,
                           const CrossEntropyOptions& options, View<Dev> loss) {
  visit_accumulator(loss.dtype(), [&]<class A>(TypeTag<A>) {
    const auto rows = loss.count();
    const A* const table = sums.data();
    cuda::map(dev, rows, cuda::RowLoss<A>{static_cast<A>(options.smoothing), options.classes},
              loss.template data<A>(), labels.template data<std::int32_t>(), max.template data<A>(),
              table, table + rows, table + 2 * rows);
  });
}
template <KernelDevice Dev>
void cross_entropy_rank_on(Dev& dev, ConstView<Dev> logits, ConstView<Dev> sums,
                           ConstView<Dev> labels, const CrossEntropyOptions& options,
                           View<Dev> rank) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const T* const x = logits.data();
    cuda::launch_rows<cuda::RowRank, T>(dev, rank.count(), logits, options, x, options.first_class,
                                        options.onto, x, sums.template data<A>(),
                                        labels.template data<std::int32_t>(),
                                        rank.template data<std::int32_t>());
  });
}
template <KernelDevice Dev>
void cross_entropy_totals_on(Dev& dev, ConstView<Dev> loss, ConstView<Dev> labels,
                             ConstView<Dev> rank, View<Dev> totals) {
  visit_accumulator(loss.dtype(), [&]<class A>(TypeTag<A>) {
    launch(dev, {1, cuda::LossTotals<A>::max_threads, cuda::block_reduce_scratch * sizeof(double)},
           cuda::LossTotals<A>{loss.count(), loss.data(), labels.data(),
                               rank.empty() ? nullptr : rank.template data<std::int32_t>(),
                               totals.data()});
  });
}
template <KernelDevice Dev>
void cross_entropy_backward_on(Dev& dev, ConstView<Dev> logits, ConstView<Dev> max,
                               ConstView<Dev> sums, ConstView<Dev> labels,
                               const CrossEntropyOptions& options, ConstView<Dev> scale,
                               View<Dev> dlogits) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    T* const out = dlogits.data();
    cuda::launch_rows<cuda::RowGradient, T>(
        dev, max.count(), logits, options, out, options.first_class, options.smoothing,
        static_cast<double>(options.classes), logits.template data<T>(), max.template data<A>(),
        sums.template data<A>(), labels.template data<std::int32_t>(),
        scale.template data<double>(), out);
  });
}

}  // namespace dhp::detail
