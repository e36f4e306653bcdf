// C, the context axis: its ranks have the same samples, and each has some rows of every one. All but attention goes by
// rows. Keys and values travel around a ring (Liu et al. 2023, "Ring attention with blockwise transformers"): a rank
// sends those it holds on while it computes with them.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/rows.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

/// The rows of each sample that a rank of the context axis has, as rows of its share. A sample is cut into 2 * ranks
/// blocks, and rank c has blocks c and 2 * ranks - 1 - c: with a causal mask, all have as many pairs.
[[nodiscard]] inline std::vector<TokenRuns> context_runs(const std::vector<std::int32_t>& offsets,
                                                         const std::vector<std::int32_t>& lengths,
                                                         int rank, int ranks) {
  std::vector<TokenRuns> all(lengths.size());
  std::int64_t row = 0;
  for (std::size_t n = 0; n < lengths.size(); ++n)
    for (const int half : {0, 1}) {
      const auto part =
          part_of(offsets[n + 1] - offsets[n], 2 * ranks, half == 0 ? rank : 2 * ranks - 1 - rank);
      const auto tokens = std::clamp<std::int64_t>(lengths[n] - part.first, 0, part.size());
      all[n][static_cast<std::size_t>(half)] = {row, part.size(), tokens, part.first};
      row += part.size();
    }
  return all;
}
[[nodiscard]] inline std::int64_t rows_of(const std::vector<TokenRuns>& samples) {
  return samples.empty() ? 0 : samples.back()[1].row + samples.back()[1].rows;
}

/// The rows of each rank.
struct ContextRows {
  template <class Dev>
  ContextRows(Dev& dev, const MicroBatch<Dev>& batch, int size)
      : offsets(batch.at("offsets").template to_host<std::int32_t>(dev)) {
    const auto lengths = batch.at("lengths").template to_host<std::int32_t>(dev);
    for (int rank = 0; rank < size; ++rank)
      by_rank.push_back(context_runs(offsets, lengths, rank, size));
  }
  [[nodiscard]] const std::vector<TokenRuns>& of(int rank) const {
    return by_rank[static_cast<std::size_t>(rank)];
  }

  std::vector<std::int32_t> offsets;  // of the whole samples
  std::vector<std::vector<TokenRuns>> by_rank;
};

/// What a rank of the context axis has of a micro-batch. "offsets" and "lengths" stay those of the whole samples; other
/// side inputs with a value for each row have those of its rows.
template <class Dev>
[[nodiscard]] MicroBatch<Dev> context_share(Dev& dev, const MicroBatch<Dev>& whole,
                                            const Comm<Dev>& context) {
  if (context.size() == 1) return whole.share();
  check(!whole.input, "a context axis splits rows of tokens, and this model's input has none");
  const auto rows_of_ranks = std::make_shared<const ContextRows>(dev, whole, context.size());
  const auto& all = *rows_of_ranks;
  const auto& runs = all.of(context.rank());
  MicroBatch<Dev> share{whole.index, whole.first_sample, whole.samples, {}, {}, whole.counts};
  share.context = rows_of_ranks;
  for (const auto& [name, tensor] : whole.side) {
    const auto& shape = tensor.shape();
    if (name == "offsets" || name == "lengths" || shape.rank() == 0 ||
        shape[0] != all.offsets.back()) {
      share.side.emplace_back(name, tensor.share());
      continue;
    }
    Tensor<Dev> rows(dev, tensor.dtype(), shape.with(0, rows_of(runs)));
    for (std::size_t n = 0; n < runs.size(); ++n)
      for (const auto& run : runs[n]) {
        if (run.rows == 0) continue;
        const auto first = all.offsets[n] + run.position;
        const auto from = tensor.view().slice(first, first + run.rows);
        dev.copy(rows.mut().slice(run.row, run.row + run.rows).bytes(), from.bytes(),
                 from.size_bytes());
      }
    share.side.emplace_back(name, std::move(rows));
  }
  share.side.emplace_back("all_row_numbers", whole.at("row_numbers").share());
  return share;
}
/// Trades rows for heads and back (Jacobs et al. 2023, "DeepSpeed Ulysses"): between the two calls each rank has all
/// rows of its share of the heads, and attention is that of whole samples. On any device.
template <class Dev>
class HeadExchange {
 public:
  HeadExchange(Dev& dev, Comm<Dev>& context, const MicroBatch<Dev>& batch)
      : dev_(dev), context_(context), rows_(*batch.context) {
    for (const auto& runs : rows_.by_rank) most_ = std::max(most_, rows_of(runs));
  }

  /// [this rank's rows, columns] -> [rows, columns / ranks]
  [[nodiscard]] Tensor<Dev> to_heads(const Tensor<Dev>& x) {
    const auto columns = x.columns() / context_.size();
    auto [mine, theirs] = blocks(x.dtype(), columns);
    for (int rank = 0; rank < context_.size(); ++rank)
      copy_columns(dev_, x.view(), rank * columns, block(mine, rank, x.rows()), 0, columns);
    context_.all_to_all(dev_, mine.view(), theirs.mut()).wait();
    Tensor<Dev> y(dev_, x.dtype(), {rows_.offsets.back(), columns});
    for_runs(
        [&](View<Dev> run, std::int64_t first) {
          dev_.copy(y.mut().slice(first, first + run.rows()).bytes(), run.bytes(),
                    run.size_bytes());
        },
        theirs);
    return y;
  }
  /// [rows, columns / ranks] -> [this rank's rows, columns]
  [[nodiscard]] Tensor<Dev> to_rows(const Tensor<Dev>& x) {
    auto [mine, theirs] = blocks(x.dtype(), x.columns());
    for_runs(
        [&](View<Dev> run, std::int64_t first) {
          dev_.copy(run.bytes(), x.view().slice(first, first + run.rows()).bytes(),
                    run.size_bytes());
        },
        mine);
    context_.all_to_all(dev_, mine.view(), theirs.mut()).wait();
    const auto rows = rows_of(rows_.of(context_.rank()));
    Tensor<Dev> y(dev_, x.dtype(), {rows, x.columns() * context_.size()});
    for (int rank = 0; rank < context_.size(); ++rank)
      copy_columns(dev_, block(theirs, rank, rows), 0, y.mut(), rank * x.columns(), x.columns());
    return y;
  }

 private:
  /// What is sent and what comes, [ranks, rows, columns]: a block for each rank, all of the size of the largest.
  [[nodiscard]] std::pair<Tensor<Dev>, Tensor<Dev>> blocks(DType dtype, std::int64_t columns) {
    const Shape shape{context_.size(), most_, columns};
    return {Tensor<Dev>::zeros(dev_, dtype, shape), Tensor<Dev>(dev_, dtype, shape)};
  }
  [[nodiscard]] View<Dev> block(Tensor<Dev>& of, int rank, std::int64_t rows) const {
    const auto& shape = of.shape();
    return of.mut().slice(rank, rank + 1).as({shape[1], shape[2]}).slice(0, rows);
  }
  /// Calls body(rows of a block, the first one's place in the whole samples).
  template <class Body>
  void for_runs(Body body, Tensor<Dev>& in) {
    for (int rank = 0; rank < context_.size(); ++rank) {
      const auto& samples = rows_.of(rank);
      for (std::size_t n = 0; n < samples.size(); ++n)
        for (const auto& run : samples[n])
          if (run.rows > 0)
            body(block(in, rank, most_).slice(run.row, run.row + run.rows),
                 rows_.offsets[n] + run.position);
    }
  }

  Dev& dev_;
  Comm<Dev>& context_;
  const ContextRows& rows_;
  std::int64_t most_ = 0;  // of a rank
};

/// Attention of the rows that this rank has to those of all ranks, as attention_forward() and attention_backward()
/// have it for whole samples. Results are equal up to rounding: the order of a row's sum depends on its rank.
template <class Dev>
class RingAttention {
 public:
  RingAttention(Dev& dev, Comm<Dev>& context, const MicroBatch<Dev>& batch, std::int64_t max_length)
      : dev_(dev), context_(context), rows_(*batch.context) {
    parts_.queries = rows_.of(context.rank());
    parts_.row_numbers = batch.at("row_numbers").view();
    parts_.max_length = max_length;
  }

  void forward(ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
               const AttentionOptions& options, View<Dev> y, View<Dev> logsumexp) {
    Tensor<Dev> sums(dev_, accumulation_type(q.dtype()), q.shape());
    auto held = both(k, v);
    for (int step = 0; step < context_.size(); ++step) {
      begin(step, held);
      if constexpr (AttendsToParts<Dev>)
        attend_to_part_forward(dev_, q, half(held.view(), 0), half(held.view(), 1), parts_, options,
                               sums.mut(), logsumexp);
      if (!is_last(step)) held = received(held, step + 1);
    }
    cast(dev_, sums.view(), y);
  }

  /// The gradients of keys and values travel behind them, and one step further: home.
  void backward(ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                ConstView<Dev> y, ConstView<Dev> logsumexp, const AttentionOptions& options,
                View<Dev> dq, View<Dev> dk, View<Dev> dv) {
    const auto accumulation = accumulation_type(q.dtype());
    Tensor<Dev> all_y(dev_, accumulation, y.shape()), all_dq(dev_, accumulation, q.shape());
    cast(dev_, y, all_y.mut());
    auto held = both(k, v);
    Tensor<Dev> gradients(dev_, accumulation, held.shape());
    for (int step = 0; step < context_.size(); ++step) {
      begin(step, held);
      if (step > 0) gradients = received(gradients, step);
      if constexpr (AttendsToParts<Dev>)
        attend_to_part_backward(dev_, dy, q, half(held.view(), 0), half(held.view(), 1),
                                all_y.view(), logsumexp, parts_, options, all_dq.mut(),
                                half(gradients.mut(), 0), half(gradients.mut(), 1));
      context_.send(dev_, gradients.share(), next());
      if (!is_last(step)) held = received(held, step + 1);
    }
    gradients = received(gradients, context_.size());
    cast(dev_, all_dq.view(), dq);
    cast(dev_, half(gradients.view(), 0), dk);
    cast(dev_, half(gradients.view(), 1), dv);
  }

 private:
  [[nodiscard]] int next() const { return (context_.rank() + 1) % context_.size(); }
  [[nodiscard]] bool is_last(int step) const { return step + 1 == context_.size(); }
  /// The rows of the rank whose keys are here in this step.
  [[nodiscard]] const std::vector<TokenRuns>& runs_in(int step) const {
    return rows_.of((context_.rank() + 2 * context_.size() - step) % context_.size());
  }
  void begin(int step, const Tensor<Dev>& held) {
    parts_.keys = runs_in(step);
    parts_.more = step > 0;
    if (!is_last(step)) context_.send(dev_, held.share(), next());
  }
  /// A tensor like this one, for the rows of that step.
  [[nodiscard]] Tensor<Dev> received(const Tensor<Dev>& like, int step) {
    Tensor<Dev> made(dev_, like.dtype(), like.shape().with(1, rows_of(runs_in(step))));
    context_.recv(dev_, made.mut(), (context_.rank() + context_.size() - 1) % context_.size());
    return made;
  }
  /// [2, rows, columns]
  [[nodiscard]] Tensor<Dev> both(ConstView<Dev> k, ConstView<Dev> v) {
    Tensor<Dev> made(dev_, k.dtype(), {2, k.rows(), k.columns()});
    cast(dev_, k, half(made.mut(), 0));
    cast(dev_, v, half(made.mut(), 1));
    return made;
  }
  template <class AnyView>
  [[nodiscard]] static AnyView half(AnyView of, int at) {
    return of.slice(at, at + 1).as({of.shape()[1], of.shape()[2]});
  }

  Dev& dev_;
  Comm<Dev>& context_;
  const ContextRows& rows_;
  AttentionParts<Dev> parts_;
};

}  // namespace dhp::detail
