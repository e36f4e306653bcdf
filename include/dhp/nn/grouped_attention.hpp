// Attention on a context axis, with bits that do not depend on the number of ranks. Each group of queries meets the
// groups of keys in a fixed order, and the gradients of a group of keys are summed over the groups of queries along one
// tree. Each rank temporarily holds the keys and values of all ranks, as in Llama 3 (Dubey et al. 2024, section 3.3.2),
// and its own queries' contributions to the gradients of all keys and values.
#pragma once

#include <dhp/nn/context.hpp>
#include <dhp/nn/group_sum.hpp>
#include <dhp/ops/elementwise.hpp>

#include <vector>

namespace dhp::detail {

/// Like RingAttention, but the results have the same bits for any number of ranks.
template <class Dev>
class GroupedAttention {
 public:
  GroupedAttention(Dev& dev, Comm<Dev>& context, const MicroBatch<Dev>& batch,
                   std::int64_t max_length)
      : dev_(dev), context_(context), rows_(*batch.context), own_(rows_.groups() / context.size()) {
    numbers_ = batch.at(own_ == rows_.groups() ? "all_row_numbers" : "row_numbers").view();
    parts_.max_length = max_length;
  }

  void forward(ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
               const AttentionOptions& options, View<Dev> y, View<Dev> logsumexp) {
    WideSum<Dev> sums(dev_, y);
    const Keys keys(dev_, context_, k, v);
    for (int own = 0; own < own_; ++own)
      for (int at = 0; at < groups(); ++at) {
        meet(own, at, at > 0);
        if constexpr (AttendsToParts<Dev>)
          attend_to_part_forward(dev_, group_rows(q, own), group_rows(keys.k, at),
                                 group_rows(keys.v, at), parts_, options,
                                 group_rows(sums.view, own), statistics(logsumexp, own));
      }
    sums.end(dev_, y);
  }

  void backward(ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                ConstView<Dev> y, ConstView<Dev> logsumexp, const AttentionOptions& options,
                View<Dev> dq, View<Dev> dk, View<Dev> dv) {
    const auto accumulation = accumulation_type(q.dtype());
    const auto wide_y = wide_copy(dev_, y);
    if (wide_y) y = wide_y.view();
    WideSum<Dev> sums(dev_, dq);
    dev_.fill_zero(sums.view.bytes(), sums.view.size_bytes());
    const Keys keys(dev_, context_, k, v);
    const auto columns = k.columns();
    GroupSum<Dev> sum(context_, groups(), RowShares<Dev>(context_, groups()));
    const auto of_keys = sum.by_blocks(
        dev_, accumulation, {groups() * rows_.most, 2 * columns}, rows_.most,
        [&](int own, Range rows, View<Dev> out, double) {
          const int at = static_cast<int>(rows.first / rows_.most);
          meet(own, at, true);
          dev_.fill_zero(out.bytes(), out.size_bytes());
          if constexpr (AttendsToParts<Dev>)
            attend_to_part_backward(dev_, group_rows(dy, own), group_rows(q, own),
                                    group_rows(keys.k, at), group_rows(keys.v, at),
                                    group_rows(y, own), statistics(logsumexp, own), parts_, options,
                                    group_rows(sums.view, own), half(out, 0), half(out, 1));
        });
    sums.end(dev_, dq);
    for (int own = 0; own < own_; ++own) {
      cast(dev_, half(group_rows(of_keys.view(), own), 0), group_rows(dk, own));
      cast(dev_, half(group_rows(of_keys.view(), own), 1), group_rows(dv, own));
    }
  }

 private:
  /// The keys and values of all ranks.
  struct Keys {
    Keys(Dev& dev, Comm<Dev>& context, ConstView<Dev> own_k, ConstView<Dev> own_v)
        : k(own_k), v(own_v) {
      if (context.size() == 1) return;
      for (auto* view : {&k, &v}) {
        all.emplace_back(dev, view->dtype(),
                         view->shape().with(0, view->shape()[0] * context.size()));
        context.all_gather(dev, *view, all.back().mut()).wait();
        *view = all.back().view();
      }
    }
    ConstView<Dev> k, v;
    std::vector<Tensor<Dev>> all{};  // k and v [rows of all ranks, columns]
  };

  [[nodiscard]] int groups() const { return rows_.groups(); }
  void meet(int own, int keys, bool more) {
    parts_.queries = rows_.of(context_.rank() * own_ + own);
    parts_.keys = rows_.of(keys);
    parts_.row_numbers = group_rows(numbers_, own);
    parts_.more = more;
  }
  template <class AnyView>
  [[nodiscard]] AnyView group_rows(AnyView all, int group) const {
    return all.slice(group * rows_.most, (group + 1) * rows_.most);
  }
  /// Returns the statistics of one group: `all` holds a block [heads, rows] for each group.
  template <class AnyView>
  [[nodiscard]] AnyView statistics(AnyView all, int own) const {
    return all.as({own_, all.count() / own_}).slice(own, own + 1);
  }
  /// Interprets a group's [rows, 2 * columns] as two blocks [rows, columns], and returns block `at`.
  template <class AnyView>
  [[nodiscard]] static AnyView half(AnyView of, int at) {
    const auto rows = of.rows();
    return of.as({2 * rows, of.columns() / 2}).slice(at * rows, (at + 1) * rows);
  }

  Dev& dev_;
  Comm<Dev>& context_;
  const ContextRows& rows_;
  int own_;  // number of this rank's groups
  ConstView<Dev> numbers_;
  AttentionParts<Dev> parts_;
};

}  // namespace dhp::detail
