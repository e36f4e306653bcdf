// C, the context axis: its ranks share the same samples, and each rank holds some rows of each sample. All layers but
// attention work row by row. For attention, HeadExchange trades rows for heads; alternatively, keys and values travel
// between ranks (ring_attention.hpp, grouped_attention.hpp).
//
// A context group is the part of each sample that is computed together. Each rank holds one group or, if all layouts
// have the same number of groups, an equal number of them.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/rows.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Returns the rows of a sample in half 0 or 1 of a group. The sample's `rows` are cut into 2 * groups blocks; half 0
/// is block `group`, half 1 is block 2 * groups - 1 - group. With a causal mask, all groups then have about the same
/// number of query-key pairs.
[[nodiscard]] inline Range context_part(std::int64_t rows, int group, int groups, int half) {
  return part_of(rows, 2 * groups, half == 0 ? group : 2 * groups - 1 - group);
}
/// Returns where a group's tensor holds the rows of each sample.
[[nodiscard]] inline std::vector<TokenRuns> context_runs(const std::vector<std::int32_t>& offsets,
                                                         const std::vector<std::int32_t>& lengths,
                                                         int group, int groups) {
  std::vector<TokenRuns> all(lengths.size());
  std::int64_t row = 0;
  for (std::size_t n = 0; n < lengths.size(); ++n)
    for (const int half : {0, 1}) {
      const auto part = context_part(offsets[n + 1] - offsets[n], group, groups, half);
      const auto tokens = std::clamp<std::int64_t>(lengths[n] - part.first, 0, part.size());
      all[n][as_size(half)] = {row, part.size(), tokens, part.first};
      row += part.size();
    }
  return all;
}
[[nodiscard]] inline std::int64_t rows_of(const std::vector<TokenRuns>& samples) {
  return samples.empty() ? 0 : samples.back()[1].row + samples.back()[1].rows;
}

struct ContextCut {
  int groups = 0;  ///< number of groups in every layout; 0: one group per rank, of any length
  std::int64_t multiple = 1;  ///< each group's number of rows is rounded up to a multiple of this
};

/// The rows of each group (at least one). If all layouts have the same groups, padding makes them equally long.
struct ContextRows {
  template <class Dev>
  ContextRows(Dev& dev, const MicroBatch<Dev>& batch, int ranks, ContextCut cut)
      : offsets(batch.at("offsets").template to_host<std::int32_t>(dev)) {
    const auto lengths = batch.at("lengths").template to_host<std::int32_t>(dev);
    const int groups = std::max(cut.groups, ranks);
    for (int group = 0; group < groups; ++group) {
      by_group.push_back(context_runs(offsets, lengths, group, groups));
      auto& runs = by_group.back();
      if (rows_of(runs) == 0 && !runs.empty()) runs.back()[1].rows = 1;  // lists may refer to row 0
      most = std::max(most, rows_of(by_group.back()));
    }
    equally_long = cut.groups > 0;
    if (!equally_long) return;
    most = (most + cut.multiple - 1) / cut.multiple * cut.multiple;
    for (auto& runs : by_group)
      if (!runs.empty()) runs.back()[1].rows += most - rows_of(runs);
  }
  [[nodiscard]] const std::vector<TokenRuns>& of(int group) const {
    return by_group[as_size(group)];
  }
  [[nodiscard]] int groups() const { return static_cast<int>(std::ssize(by_group)); }
  /// Calls body(first row in the group's tensor, rows of the whole samples) for each part of a sample that a group has.
  void for_parts(int group, auto body) const {
    for (std::size_t n = 0; n < of(group).size(); ++n)
      for (const int half : {0, 1}) {
        const std::int64_t first = offsets[n];
        const auto part = context_part(offsets[n + 1] - first, group, groups(), half);
        if (part.size() > 0)
          body(of(group)[n][as_size(half)].row, Range{first + part.first, first + part.last});
      }
  }

  std::vector<std::int32_t> offsets;  // offsets of the whole samples
  std::vector<std::vector<TokenRuns>> by_group;
  std::int64_t most = 0;  // rows of the longest group
  bool equally_long = false;
};

/// Returns the rows of whole samples that these groups hold. Padding rows are 0, or -1 if `ignores` is set.
template <class Dev>
[[nodiscard]] Tensor<Dev> rows_of_groups(Dev& dev, const Tensor<Dev>& whole, const ContextRows& all,
                                         int first_group, int groups, bool ignores = false) {
  std::int64_t count = 0;
  for (int at = 0; at < groups; ++at) count += rows_of(all.of(first_group + at));
  const auto shape = whole.shape().with(0, count);
  auto rows = Tensor<Dev>::zeros(dev, whole.dtype(), shape);
  if (ignores)
    rows =
        Tensor<Dev>::from_host(dev, shape, std::vector<std::int32_t>(as_size(shape.count()), -1));
  for (int at = 0; at < groups; ++at)
    all.for_parts(first_group + at, [&](std::int64_t row, Range part) {
      row += at * all.most;
      copy(dev, whole.view().slice(part), rows.mut().slice(row, row + part.size()));
    });
  return rows;
}

/// Adds these groups' share of the lists of labeled rows to `share`. Each group gets equally many entries; surplus
/// entries have the label -1, which losses ignore. The list "first_rows" keeps one entry for each sample, and
/// "sample_numbers" has the numbers of these samples. Returns the names of the added lists and of their labels.
template <class Dev>
std::vector<std::string> add_listed_rows(Dev& dev, const MicroBatch<Dev>& whole, Range groups,
                                         MicroBatch<Dev>& share) {
  const auto& all = *share.context;
  std::vector<std::string> added;
  std::vector<std::pair<int, std::int64_t>> place(as_size(all.offsets.back()));
  for (int group = 0; group < all.groups(); ++group)
    all.for_parts(group, [&](std::int64_t row, Range part) {
      for (auto at = part.first; at < part.last; ++at)
        place[as_size(at)] = {group, row + at - part.first};
    });
  for (const auto& [rows_name, labels_name] :
       {std::pair{"masked_rows", "masked_labels"},
        {"first_rows", whole.has("next_labels") ? "next_labels" : "labels"}}) {
    if (!whole.has(rows_name)) continue;
    check(whole.has(labels_name) && whole.at(labels_name).dtype() == DType::i32 &&
              whole.at(labels_name).count() == whole.at(rows_name).count(),
          "a context axis splits \"", rows_name, "\" with an i32 for each in \"", labels_name,
          "\", which this batch does not have; choose a layout without it");
    const auto rows = whole.at(rows_name).template to_host<std::int32_t>(dev);
    const auto labels = whole.at(labels_name).template to_host<std::int32_t>(dev);
    std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> lists(as_size(all.groups()));
    const bool of_samples = rows_name == std::string_view("first_rows");
    std::size_t most = of_samples ? rows.size() : 0;
    for (std::size_t at = 0; at < rows.size(); ++at) {
      if (labels[at] < 0 || rows[at] < 0 || rows[at] >= all.offsets.back()) continue;
      const auto [group, row] = place[as_size(rows[at])];
      auto& list = lists[as_size(group)];
      if (of_samples) list.resize(at, {0, -1});
      list.emplace_back(row, labels[at]);
      most = std::max(most, list.size());
    }
    std::vector<std::int32_t> own_rows, own_labels;
    std::vector<std::int64_t> numbers;
    for (std::int64_t own = 0; own < groups.size(); ++own) {
      auto& list = lists[as_size(groups.first + own)];
      list.resize(most, {0, -1});
      for (const auto& [row, label] : list) {
        own_rows.push_back(static_cast<std::int32_t>(own * all.most) + row);
        own_labels.push_back(label);
        numbers.push_back(whole.first_sample + (std::ssize(numbers) % std::ssize(list)));
      }
    }
    const Shape shape{std::ssize(own_rows)};
    share.side.emplace_back(rows_name, Tensor<Dev>::from_host(dev, shape, own_rows));
    share.side.emplace_back(labels_name, Tensor<Dev>::from_host(dev, shape, own_labels));
    if (of_samples)
      share.side.emplace_back("sample_numbers", Tensor<Dev>::from_host(dev, shape, numbers));
    added.push_back(rows_name);
    added.push_back(labels_name);
  }
  return added;
}

/// Returns a context rank's share of a micro-batch. "offsets" and "lengths" still describe the whole samples; side
/// inputs with one value for each row have this rank's rows only. Padding rows hold zeros and ignored labels.
template <class Dev>
[[nodiscard]] MicroBatch<Dev> context_share(Dev& dev, const MicroBatch<Dev>& whole,
                                            const Comm<Dev>& context, ContextCut cut = {}) {
  if (std::max(context.size(), cut.groups) == 1) return whole.share();
  check(!whole.input, "a context axis splits rows of tokens, and this model's input has none");
  MicroBatch<Dev> share{whole.index, whole.first_sample, whole.samples, {}, {}, whole.counts};
  share.context = std::make_shared<const ContextRows>(dev, whole, context.size(), cut);
  const auto& all = *share.context;
  const int groups = all.groups() / context.size();  // number of this rank's groups
  if (all.equally_long) share.row_groups = groups;
  const int first = context.rank() * groups;
  const auto listed = add_listed_rows(dev, whole, {first, first + groups}, share);
  for (const auto& [name, tensor] : whole.side) {
    if (std::find(listed.begin(), listed.end(), name) != listed.end()) continue;
    const auto& shape = tensor.shape();
    const bool is_whole = name == "offsets" || name == "lengths" || shape.rank() == 0 ||
                          shape[0] != all.offsets.back();
    const bool ignores = name == "labels" && tensor.dtype() == DType::i32;
    share.side.emplace_back(
        name, is_whole ? tensor.share() : rows_of_groups(dev, tensor, all, first, groups, ignores));
  }
  const auto& numbers = whole.at("row_numbers");
  share.side.emplace_back(
      "all_row_numbers",
      cut.groups == 0 ? numbers.share() : rows_of_groups(dev, numbers, all, 0, all.groups()));
  return share;
}

/// Trades rows for heads and back (Jacobs et al. 2023, "DeepSpeed Ulysses"). Between to_heads() and to_rows() each rank
/// has all rows of its share of the heads. Attention then sees whole samples or, if all layouts have equally long
/// groups, all groups one after another. Works on any device.
template <class Dev>
class HeadExchange {
 public:
  HeadExchange(Dev& dev, Comm<Dev>& context, const MicroBatch<Dev>& batch)
      : dev_(dev),
        context_(context),
        rows_(*batch.context),
        max_(rows_.most * std::max(batch.row_groups, 1)) {}

  /// Sends rows and receives heads: [this rank's rows, columns] -> [all rows, columns / ranks]
  [[nodiscard]] Tensor<Dev> to_heads(ConstView<Dev> x) {
    const auto columns = x.columns() / context_.size();
    auto [mine, theirs] = blocks(x.dtype(), columns);
    for (int rank = 0; rank < context_.size(); ++rank)
      copy_columns(dev_, x, rank * columns, block(mine, rank, x.rows()), 0, columns);
    context_.all_to_all(dev_, mine.view(), theirs.mut()).wait();
    if (rows_.equally_long) return std::move(theirs).reshape({context_.size() * max_, columns});
    Tensor<Dev> y(dev_, x.dtype(), {rows_.offsets.back(), columns});
    for_runs([&](View<Dev> run,
                 std::int64_t first) { copy(dev_, run, y.mut().slice(first, first + run.rows())); },
             theirs);
    return y;
  }
  /// Sends heads and receives rows: [all rows, columns / ranks] -> [this rank's rows, columns]
  [[nodiscard]] Tensor<Dev> to_rows(ConstView<Dev> x) {
    auto [mine, theirs] = blocks(x.dtype(), x.columns());
    if (rows_.equally_long) dev_.copy(mine.mut().bytes(), x.bytes(), x.size_bytes());
    else
      for_runs([&](View<Dev> run,
                   std::int64_t first) { copy(dev_, x.slice(first, first + run.rows()), run); },
               mine);
    context_.all_to_all(dev_, mine.view(), theirs.mut()).wait();
    const auto rows = rows_.equally_long ? max_ : rows_of(rows_.of(context_.rank()));
    Tensor<Dev> y(dev_, x.dtype(), {rows, x.columns() * context_.size()});
    for (int rank = 0; rank < context_.size(); ++rank)
      copy_columns(dev_, block(theirs, rank, rows), 0, y.mut(), rank * x.columns(), x.columns());
    return y;
  }

 private:
  /// Makes send and receive buffers [ranks, rows, columns]. Each rank's block has the size of the largest.
  [[nodiscard]] std::pair<Tensor<Dev>, Tensor<Dev>> blocks(DType dtype, std::int64_t columns) {
    const Shape shape{context_.size(), max_, columns};
    return {Tensor<Dev>::zeros(dev_, dtype, shape), Tensor<Dev>(dev_, dtype, shape)};
  }
  [[nodiscard]] View<Dev> block(Tensor<Dev>& of, int rank, std::int64_t rows) const {
    const auto& shape = of.shape();
    return of.mut().slice(rank, rank + 1).as({shape[1], shape[2]}).slice(0, rows);
  }
  /// Calls body(a run of rows in a rank's block, their first row in the whole samples) for all runs of all ranks.
  void for_runs(auto body, Tensor<Dev>& in) {
    for (int rank = 0; rank < context_.size(); ++rank)
      rows_.for_parts(rank, [&](std::int64_t row, Range part) {
        body(block(in, rank, max_).slice(row, row + part.size()), part.first);
      });
  }

  Dev& dev_;
  Comm<Dev>& context_;
  const ContextRows& rows_;
  std::int64_t max_;  // largest number of rows on a rank
};

}  // namespace dhp::detail
