#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/cross_entropy.hpp>

#include <algorithm>
#include <limits>

namespace dhp::detail::cpu {

inline constexpr std::int64_t logit_tile = 4;  ///< rows that a thread takes at a time

inline const std::int32_t* checked_labels(ConstView<Cpu> labels, std::int64_t classes) {
  const auto* label = labels.data<std::int32_t>();
  for (std::int64_t row = 0; row < labels.count(); ++row)
    check(label[row] >= -1 && label[row] < classes, "cross_entropy: label ", label[row], " of row ",
          row, " is not among ", classes, " classes (-1: ignored)");
  return label;
}

/// Computes to[i] = e^(from[i] - most). noinline avoids a false GCC warning about an uninitialized array.
template <class T, class A>
[[gnu::noinline]] void exponentials(std::int64_t count, const T* from, A most, A* to) {
  for_vectors(
      count, to, [=](auto logit) { return fast_exp(logit - most); }, widened(from, count, to));
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void cross_entropy_max_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> logits,
                          const CrossEntropyOptions& options, View<Cpu> max) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto columns = options.classes_of(logits.shape()), stride = logits.columns();
    const T* const x = logits.data<T>();
    A* const to = max.data<A>();
    cpu::for_rows(dev, logits.rows(), cpu::logit_tile, [=, onto = options.onto](std::int64_t row) {
      A most = onto ? to[row] : -std::numeric_limits<A>::infinity();
      const auto take = [&](std::int64_t, std::int64_t count, const A* values) {
        most = std::max(most, cpu::largest<A>(count, [=](std::int64_t c) { return values[c]; }));
      };
      cpu::in_row_blocks<A>(columns, take, x + row * stride);
      to[row] = most;
    });
  });
}
void cross_entropy_sums_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> logits,
                           ConstView<Cpu> labels, ConstView<Cpu> max,
                           const CrossEntropyOptions& options, View<Cpu> sums) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto rows = logits.rows(), stride = logits.columns();
    const auto columns = options.classes_of(logits.shape());
    const auto* const label = cpu::checked_labels(labels, options.classes);
    const T* const x = logits.data<T>();
    const A* const maxima = max.data<A>();
    A* const to = sums.data<A>();
    cpu::for_rows(dev, rows, cpu::logit_tile, [=](std::int64_t row) {
      const T* from = x + row * stride;
      const A most = maxima[row];
      const auto mine = label[row] - options.first_class;
      cpu::LaneSum<A> sum;
      cpu::in_row_blocks<A>(columns, [&](std::int64_t first, std::int64_t count) {
        A powers[cpu::row_block];
        cpu::exponentials(count, from + first, most, powers);
        sum.add(count, [&](std::int64_t at) { return powers[at]; });
      });
      to[row] = sum.total();
      to[rows + row] = mine >= 0 && mine < columns ? static_cast<A>(from[mine]) : A(0);
      to[2 * rows + row] =
          options.smoothing == 0 ? A(0) : cpu::lane_sum<A>(columns, [=](std::int64_t c) {
            return static_cast<A>(from[c]) - most;
          });
    });
  });
}
void cross_entropy_loss_on(std::same_as<Cpu> auto&, ConstView<Cpu> max, ConstView<Cpu> sums,
                           ConstView<Cpu> labels, const CrossEntropyOptions& options,
                           View<Cpu> loss) {
  visit_accumulator(loss.dtype(), [&]<class A>(TypeTag<A>) {
    const auto rows = labels.count();
    const auto* const label = cpu::checked_labels(labels, options.classes);
    const A *const most = max.data<A>(), *const sum = sums.data<A>();
    A* const to = loss.data<A>();
    for (std::int64_t row = 0; row < rows; ++row)
      to[row] = label[row] < 0 ? A(0)
                               : cross_entropy_of(static_cast<A>(options.smoothing),
                                                  static_cast<A>(options.classes), most[row],
                                                  sum[row], sum[rows + row], sum[2 * rows + row]);
  });
}
void cross_entropy_rank_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> logits, ConstView<Cpu> sums,
                           ConstView<Cpu> labels, const CrossEntropyOptions& options,
                           View<Cpu> rank) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto rows = logits.rows(), stride = logits.columns();
    const auto columns = options.classes_of(logits.shape());
    const auto* const label = cpu::checked_labels(labels, options.classes);
    const T* const x = logits.data<T>();
    const A* const wanted_of = sums.data<A>() + rows;
    auto* const to = rank.data<std::int32_t>();
    const bool onto = options.onto;
    cpu::for_rows(dev, rows, cpu::logit_tile, [=](std::int64_t row) {
      const T* from = x + row * stride;
      const A wanted = wanted_of[row];
      const auto mine = label[row] - options.first_class;  // out of range if on another rank
      std::int32_t better = onto ? to[row] : 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        const A value = static_cast<A>(from[c]);
        // A NaN logit counts as better than the label, so that no prediction of its row is correct.
        better += !(value <= wanted) || (value == wanted && c < mine) ? 1 : 0;
      }
      to[row] = label[row] < 0 ? 0 : better;
    });
  });
}
void cross_entropy_totals_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> loss,
                             ConstView<Cpu> labels, ConstView<Cpu> rank, View<Cpu> totals) {
  sum_on(dev, loss, Itself(), totals.slice(0, 1));
  const auto* label = labels.data<std::int32_t>();
  double* const out = totals.data<double>();
  std::fill_n(out + 1, 3, 0.0);
  for (std::int64_t row = 0; row < labels.count(); ++row) {
    if (label[row] < 0) continue;
    out[1] += 1;
    if (rank.empty()) continue;
    const auto place = rank.data<std::int32_t>()[row];
    out[2] += place == 0 ? 1 : 0;
    out[3] += place < 5 ? 1 : 0;
  }
}
void cross_entropy_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> logits,
                               ConstView<Cpu> max, ConstView<Cpu> sums, ConstView<Cpu> labels,
                               const CrossEntropyOptions& options, ConstView<Cpu> scale_of,
                               View<Cpu> dlogits) {
  visit_floating(logits.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto columns = options.classes_of(logits.shape()), stride = logits.columns();
    const auto* const label = cpu::checked_labels(labels, options.classes);
    const double scale = *scale_of.data<double>();
    const A on_all =
        static_cast<A>(scale * options.smoothing / static_cast<double>(options.classes));
    const A on_label = static_cast<A>(scale * (1 - options.smoothing));
    const T* const x = logits.data<T>();
    const A *const maxima = max.data<A>(), *const powers_of = sums.data<A>();
    T* const gradients = dlogits.data<T>();
    cpu::for_rows(dev, logits.rows(), cpu::logit_tile, [=](std::int64_t row) {
      const T* from = x + row * stride;
      T* to = gradients + row * stride;
      std::fill(to + (label[row] < 0 ? 0 : columns), to + stride, T(0.0f));
      if (label[row] < 0) return;
      const A most = maxima[row], below = on_all;  // local copies, which alias no output
      const A factor = static_cast<A>(scale) / powers_of[row];
      const auto mine = label[row] - options.first_class;
      const bool here = mine >= 0 && mine < columns;
      const A at_label =
          here ? factor * cpu::fast_exp(static_cast<A>(from[mine]) - most) - on_all - on_label
               : A(0);
      cpu::in_row_blocks<A>(columns, [&](std::int64_t first, std::int64_t count) {
        A powers[cpu::row_block];  // a buffer: dlogits may alias the logits
        cpu::exponentials(count, from + first, most, powers);
        cpu::write_narrowed<A>(to + first, count, [&](A* out) {
          for (std::int64_t at = 0; at < count; ++at) out[at] = factor * powers[at] - below;
        });
      });
      if (here) to[mine] = static_cast<T>(at_label);
    });
  });
}

}  // namespace dhp::detail
