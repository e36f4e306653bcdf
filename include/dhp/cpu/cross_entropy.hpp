#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/cross_entropy.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dhp::cpu {

template <class T>
struct CrossEntropyKernel {
  using A = Accumulator<T>;
  static void max(Cpu& dev, ConstView<Cpu> logits, A* max);
  static void sums(Cpu& dev, ConstView<Cpu> logits, const std::int32_t* labels, const A* max,
                   const CrossEntropyOptions& options, A* sums);
  static void loss(std::int64_t rows, const A* max, const A* sums, const std::int32_t* labels,
                   const CrossEntropyOptions& options, A* loss);
  static void rank(Cpu& dev, ConstView<Cpu> logits, const A* sums, const std::int32_t* labels,
                   const CrossEntropyOptions& options, std::int32_t* rank);
  static void backward(Cpu& dev, ConstView<Cpu> logits, const A* max, const A* sums,
                       const std::int32_t* labels, const CrossEntropyOptions& options, double scale,
                       T* dlogits);
  static constexpr std::int64_t row_tile = 4;
  static constexpr std::int64_t piece = 256;  // of a row; fits the L1 cache
};

template <class T>
void CrossEntropyKernel<T>::max(Cpu& dev, ConstView<Cpu> logits, A* max) {
  const T* x = logits.data<T>();
  const auto columns = logits.columns();
  dev.for_ranges(logits.rows(), row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row)
      max[row] = columns == 0 ? -std::numeric_limits<A>::infinity()
                              : largest<A>(columns, [=](std::int64_t c) {
                                  return static_cast<A>(x[row * columns + c]);
                                });
  });
}

template <class T>
void CrossEntropyKernel<T>::sums(Cpu& dev, ConstView<Cpu> logits, const std::int32_t* labels,
                                 const A* max, const CrossEntropyOptions& options, A* sums) {
  const T* x = logits.data<T>();
  const auto rows = logits.rows();
  const auto columns = logits.columns();
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      const A most = max[row];
      const auto mine = labels[row] - options.first_class;
      sums[row] = lane_sum<A>(
          columns, [=](std::int64_t c) { return fast_exp(static_cast<A>(from[c]) - most); });
      sums[rows + row] = mine >= 0 && mine < columns ? static_cast<A>(from[mine]) : A(0);
      sums[2 * rows + row] =
          options.smoothing == 0 ? A(0) : lane_sum<A>(columns, [=](std::int64_t c) {
            return static_cast<A>(from[c]) - most;
          });
    }
  });
}

template <class T>
void CrossEntropyKernel<T>::loss(std::int64_t rows, const A* max, const A* sums,
                                 const std::int32_t* labels, const CrossEntropyOptions& options,
                                 A* loss) {
  const A smoothing = static_cast<A>(options.smoothing), classes = static_cast<A>(options.classes);
  for (std::int64_t row = 0; row < rows; ++row)
    loss[row] = labels[row] < 0 ? A(0)
                                : cross_entropy_of(smoothing, classes, max[row], sums[row],
                                                   sums[rows + row], sums[2 * rows + row]);
}

template <class T>
void CrossEntropyKernel<T>::rank(Cpu& dev, ConstView<Cpu> logits, const A* sums,
                                 const std::int32_t* labels, const CrossEntropyOptions& options,
                                 std::int32_t* rank) {
  const T* x = logits.data<T>();
  const auto rows = logits.rows();
  const auto columns = logits.columns();
  dev.for_ranges(rows, row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      const A wanted = sums[rows + row];
      const auto label = labels[row] - options.first_class;  // outside if on another rank
      std::int32_t better = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const A value = static_cast<A>(from[c]);
        // Not (value <= wanted): with a NaN logit no prediction is correct.
        better += !(value <= wanted) || (value == wanted && c < label) ? 1 : 0;
      }
      rank[row] = labels[row] < 0 ? 0 : better;
    }
  });
}

template <class T>
void CrossEntropyKernel<T>::backward(Cpu& dev, ConstView<Cpu> logits, const A* max, const A* sums,
                                     const std::int32_t* labels, const CrossEntropyOptions& options,
                                     double scale, T* dlogits) {
  const T* x = logits.data<T>();
  const auto columns = logits.columns();
  const A on_all = static_cast<A>(scale * options.smoothing / static_cast<double>(options.classes));
  const A on_label = static_cast<A>(scale * (1 - options.smoothing));
  dev.for_ranges(logits.rows(), row_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const T* from = x + row * columns;
      T* to = dlogits + row * columns;
      if (labels[row] < 0) {
        for (std::int64_t c = 0; c < columns; ++c) to[c] = T(0.0f);
        continue;
      }
      const A most = max[row];
      const A factor = static_cast<A>(scale) / sums[row];
      const auto mine = labels[row] - options.first_class;
      const bool here = mine >= 0 && mine < columns;
      const A at_label =
          here ? factor * fast_exp(static_cast<A>(from[mine]) - most) - on_all - on_label : A(0);
      for (std::int64_t begin = 0; begin < columns; begin += piece) {
        const auto end = std::min(begin + piece, columns);
        // A local array lets the loop vectorize even if dlogits alias the logits.
        A powers[piece];
        for (auto c = begin; c < end; ++c)
          powers[c - begin] = fast_exp(static_cast<A>(from[c]) - most);
        for (auto c = begin; c < end; ++c)
          to[c] = static_cast<T>(factor * powers[c - begin] - on_all);
      }
      if (here) to[mine] = static_cast<T>(at_label);
    }
  });
}

inline const std::int32_t* checked_labels(ConstView<Cpu> labels, std::int64_t classes) {
  const auto* label = labels.data<std::int32_t>();
  for (std::int64_t row = 0; row < labels.count(); ++row)
    check(label[row] >= -1 && label[row] < classes, "cross_entropy: label ", label[row], " of row ",
          row, " is not among ", classes, " classes (-1: ignored)");
  return label;
}

}  // namespace dhp::cpu

namespace dhp {

inline void cross_entropy_max_on(Cpu& dev, ConstView<Cpu> logits, View<Cpu> max) {
  visit_floating(logits.dtype(), [&]<class T>(Tag<T>) {
    cpu::CrossEntropyKernel<T>::max(dev, logits, max.data<Accumulator<T>>());
  });
}
inline void cross_entropy_sums_on(Cpu& dev, ConstView<Cpu> logits, ConstView<Cpu> labels,
                                  ConstView<Cpu> max, const CrossEntropyOptions& options,
                                  View<Cpu> sums) {
  visit_floating(logits.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::CrossEntropyKernel<T>::sums(dev, logits, cpu::checked_labels(labels, options.classes),
                                     max.data<A>(), options, sums.data<A>());
  });
}
inline void cross_entropy_loss_on(Cpu&, ConstView<Cpu> max, ConstView<Cpu> sums,
                                  ConstView<Cpu> labels, const CrossEntropyOptions& options,
                                  View<Cpu> loss) {
  visit_accumulator(loss.dtype(), [&]<class A>(Tag<A>) {
    cpu::CrossEntropyKernel<A>::loss(labels.count(), max.data<A>(), sums.data<A>(),
                                     cpu::checked_labels(labels, options.classes), options,
                                     loss.data<A>());
  });
}
inline void cross_entropy_rank_on(Cpu& dev, ConstView<Cpu> logits, ConstView<Cpu> sums,
                                  ConstView<Cpu> labels, const CrossEntropyOptions& options,
                                  View<Cpu> rank) {
  visit_floating(logits.dtype(), [&]<class T>(Tag<T>) {
    cpu::CrossEntropyKernel<T>::rank(dev, logits, sums.data<Accumulator<T>>(),
                                     cpu::checked_labels(labels, options.classes), options,
                                     rank.data<std::int32_t>());
  });
}
inline void cross_entropy_totals_on(Cpu& dev, ConstView<Cpu> loss, ConstView<Cpu> labels,
                                    ConstView<Cpu> rank, View<Cpu> totals) {
  sum_on(dev, loss, totals.slice(0, 1));
  const auto* label = labels.data<std::int32_t>();
  double counted = 0, first = 0, in_five = 0;
  for (std::int64_t row = 0; row < labels.count(); ++row) {
    if (label[row] < 0) continue;
    counted += 1;
    if (rank.empty()) continue;
    const auto place = rank.data<std::int32_t>()[row];
    first += place == 0 ? 1 : 0;
    in_five += place < 5 ? 1 : 0;
  }
  double* const out = totals.data<double>();
  out[1] = counted;
  out[2] = first;
  out[3] = in_five;
}
inline void cross_entropy_backward_on(Cpu& dev, ConstView<Cpu> logits, ConstView<Cpu> max,
                                      ConstView<Cpu> sums, ConstView<Cpu> labels,
                                      const CrossEntropyOptions& options, ConstView<Cpu> scale,
                                      View<Cpu> dlogits) {
  visit_floating(logits.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::CrossEntropyKernel<T>::backward(dev, logits, max.data<A>(), sums.data<A>(),
                                         cpu::checked_labels(labels, options.classes), options,
                                         *scale.data<double>(), dlogits.data<T>());
  });
}

}  // namespace dhp
