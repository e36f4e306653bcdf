// Sequences of tokens for a causal decoder: documents end to end, cut into samples of one length. A token attends to
// earlier tokens of its document and sample, and predicts the next token; a document's last token predicts its end.
// Side inputs of a micro-batch, over all its rows:
//
//   token_ids, labels i32 [rows]      label -1: nothing to predict
//   positions i32, row_numbers i64    positions restart with each document and sample
//   offsets, lengths i32              of the documents' parts
//   predicted_rows i32                the last row of each part, at which a next token is predicted
#pragma once

#include <dhp/data/collate.hpp>
#include <dhp/data/permutation.hpp>

#include "../data/documents.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace examples {

/// The arrays of a micro-batch while it grows.
class SequenceRows {
 public:
  /// before: number of this part's rows that earlier passes have put into a cache.
  void begin_part(std::size_t before = 0) {
    if (offsets_.back() != rows()) offsets_.push_back(rows());
    first_position_ = static_cast<std::int32_t>(before);
  }
  /// number: the row's number in the whole micro-batch, as if all its samples had the same length.
  void add(std::int32_t token, std::int32_t label, std::int64_t number) {
    positions_.push_back(first_position_ + rows() - offsets_.back());
    tokens_.push_back(token);
    labels_.push_back(label);
    numbers_.push_back(number);
  }
  /// Finishes the batch; its predicted rows are the last tokens of all parts.
  [[nodiscard]] dhp::HostBatch finish(std::int64_t rows_per_sample) {
    begin_part();
    std::vector<std::int32_t> lengths, last;
    std::int64_t pairs = 0;
    for (std::size_t at = 1; at < offsets_.size(); ++at) {
      const std::int64_t length = offsets_[at] - offsets_[at - 1];
      lengths.push_back(static_cast<std::int32_t>(length));
      last.push_back(offsets_[at] - 1);
      pairs += length * (length + 1) / 2;
    }
    dhp::HostBatch batch;
    batch.put("token_ids", tokens_);
    batch.put("labels", labels_);
    batch.put("positions", positions_);
    batch.put("row_numbers", numbers_);
    batch.put("offsets", offsets_);
    batch.put("lengths", lengths);
    batch.put("predicted_rows", last);
    batch.rows_per_sample = rows_per_sample;
    batch.counts.emplace_back("tokens", rows() - std::count(labels_.begin(), labels_.end(), -1));
    batch.counts.emplace_back("token_pairs", pairs);
    return batch;
  }

 private:
  [[nodiscard]] std::int32_t rows() const { return static_cast<std::int32_t>(tokens_.size()); }

  std::vector<std::int32_t> tokens_, labels_, positions_, offsets_{0};
  std::vector<std::int64_t> numbers_;
  std::int32_t first_position_ = 0;
};

/// Cheap to copy: copies share the text. Each document of the text is one sentence and begins with the begin token.
class DocumentSamples {
 public:
  DocumentSamples() = default;  ///< an empty dataset
  /// end: the token that a document's last token predicts.
  DocumentSamples(std::shared_ptr<const TokenText> text, std::int32_t end, std::int64_t length)
      : text_(std::move(text)), end_(end), length_(length) {
    const auto rows = static_cast<std::int64_t>(text_->items().size());
    auto all = std::make_shared<std::vector<std::int64_t>>();
    for (std::int64_t sample = 0; sample * length < rows; ++sample) all->push_back(sample);
    samples_ = std::move(all);
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(samples_->size()); }

  /// Holds out the first samples in the random order of `seed`: the fraction, and at least one (none for fraction 0).
  [[nodiscard]] std::pair<DocumentSamples, DocumentSamples> split(double held_out,
                                                                  std::uint64_t seed) const {
    auto kept = static_cast<std::int64_t>(held_out * static_cast<double>(size()));
    if (held_out > 0) kept = std::max<std::int64_t>(kept, 1);
    dhp::check(size() - kept >= 1, "the text is ", dhp::detail::pluralize(size(), "sequence"),
               " of ", length_,
               " tokens, too few to train on and to hold some out; give a longer "
               "text, or a smaller --sequence-length");
    const dhp::Permutation order(size(), seed, -1);
    std::vector<std::int64_t> held, rest;
    for (std::int64_t at = 0; at < size(); ++at) (at < kept ? held : rest).push_back(order(at));
    return {with(std::move(rest)), with(std::move(held))};
  }

  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    const auto items = text_->items();
    const auto starts = text_->arrays().sentences;
    SequenceRows rows;
    for (std::size_t n = 0; n < indices.size(); ++n) {
      dhp::check(indices[n] >= 0 && indices[n] < size(), "no sample ", indices[n], " among ",
                 size());
      const auto first = (*samples_)[static_cast<std::size_t>(indices[n])] * length_;
      const auto last = std::min(first + length_, static_cast<std::int64_t>(items.size()));
      auto next = std::upper_bound(starts.begin(), starts.end(), first);  // next document
      rows.begin_part();
      for (auto row = first; row < last; ++row) {
        const bool ends = row + 1 == *next;
        rows.add(items[static_cast<std::size_t>(row)],
                 ends ? end_ : items[static_cast<std::size_t>(row) + 1],
                 static_cast<std::int64_t>(n) * length_ + row - first);
        if (!ends) continue;
        rows.begin_part();
        ++next;
      }
    }
    return rows.finish(length_);
  }

 private:
  [[nodiscard]] DocumentSamples with(std::vector<std::int64_t> samples) const {
    auto result = *this;
    result.samples_ = std::make_shared<const std::vector<std::int64_t>>(std::move(samples));
    return result;
  }

  std::shared_ptr<const TokenText> text_;
  std::int32_t end_ = 0;
  std::int64_t length_ = 1;
  std::shared_ptr<const std::vector<std::int64_t>> samples_ =
      std::make_shared<std::vector<std::int64_t>>();
};

static_assert(dhp::Batcher<DocumentSamples>);

}  // namespace examples
