// Turns sentence pairs into BERT's micro-batches. Rows are tokens; all layouts hold the same samples,
// masks and row numbers. Side inputs, i32 unless said, for N samples of R rows with M hidden
// tokens:
//
//   token_ids, positions, segments [R]   row_numbers i64 [R]: (global sample)*sequence_length + position
//   offsets [N+1], lengths [N]           rows of sample n: offsets[n] .. offsets[n] + lengths[n]
//   masked_rows, masked_labels [M]       rows of the hidden tokens, in order, and the original tokens
//   first_rows, next_labels [N]          row of [CLS]; 0: B follows A, 1: B is random
//
// In the layout `fixed` M is N * most_hidden(): the rest is filled with row 0, a [CLS], which is never hidden, and the
// label -1, which losses ignore.
#pragma once

#include <dhp/data/collate.hpp>

#include "masked_lm.hpp"

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace examples {

enum class TokenLayout {
  packed,  ///< samples end to end, without padding
  padded,  ///< each sample has sequence_length rows, padded with [PAD]
  fixed    ///< padded, with a fixed number of masked rows: no shape depends on the text
};

class MaskedLmBatcher {
 public:
  MaskedLmBatcher(SentencePairs pairs, Vocabulary vocabulary, const MaskedLmOptions& options,
                  TokenLayout layout = TokenLayout::packed)
      : pairs_(std::move(pairs)),
        vocabulary_(std::move(vocabulary)),
        options_(options),
        layout_(layout) {}

  [[nodiscard]] std::int64_t size() const { return pairs_.size(); }
  [[nodiscard]] MaskedLmSample sample(std::int64_t index, std::int64_t epoch) const {
    return masked_lm_sample(pairs_, vocabulary_, options_, index, epoch);
  }

  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices,
                                       std::int64_t epoch) const {
    Rows rows;
    for (std::size_t at = 0; at < indices.size(); ++at)
      dhp::naming_sample(indices[at], [&] {
        append(sample(indices[at], epoch), static_cast<std::int64_t>(at), rows);
      });
    dhp::HostBatch batch;
    const auto hidden = static_cast<std::int64_t>(rows.masked_rows.size());
    if (layout_ == TokenLayout::fixed) fill_up(rows);
    batch.put("token_ids", rows.token_ids);
    batch.put("positions", rows.positions);
    batch.put("segments", rows.segments);
    batch.put("row_numbers", rows.row_numbers);
    batch.put("offsets", rows.offsets);
    batch.put("lengths", rows.lengths);
    batch.put("masked_rows", rows.masked_rows);
    batch.put("masked_labels", rows.masked_labels);
    batch.put("first_rows", rows.first_rows);
    batch.put("next_labels", rows.next_labels);
    batch.rows_per_sample = options_.sequence_length;
    batch.counts.emplace_back("masked_tokens", hidden);
    batch.counts.emplace_back("samples", static_cast<std::int64_t>(indices.size()));
    std::int64_t tokens = 0, pairs = 0;  // pairs: of tokens that attend to each other
    for (const std::int64_t length : rows.lengths) {
      tokens += length;
      pairs += length * length;
    }
    batch.counts.emplace_back("tokens", tokens);
    batch.counts.emplace_back("token_pairs", pairs);
    return batch;
  }

 private:
  struct Rows {
    std::vector<std::int32_t> token_ids, positions, segments;
    std::vector<std::int64_t>
        row_numbers;  // counted as if the batch began with sample 0; upload() adds the offset
    std::vector<std::int32_t> offsets{0}, lengths, masked_rows, masked_labels, first_rows,
        next_labels;
  };

  void append(const MaskedLmSample& sample, std::int64_t n, Rows& rows) const {
    const auto first = static_cast<std::int32_t>(rows.token_ids.size());
    const auto length = static_cast<std::int64_t>(sample.tokens.size());
    const auto count = layout_ == TokenLayout::packed ? length : options_.sequence_length;
    dhp::check(first <= std::numeric_limits<std::int32_t>::max() - count,
               "a micro-batch holds more rows than 32-bit numbers; make it smaller");
    for (std::int64_t position = 0; position < count; ++position) {
      const bool real = position < length;
      rows.token_ids.push_back(real ? sample.tokens[static_cast<std::size_t>(position)]
                                    : vocabulary_.pad());
      rows.positions.push_back(static_cast<std::int32_t>(position));
      rows.segments.push_back(real && position >= sample.second_segment ? 1 : 0);
      rows.row_numbers.push_back(n * options_.sequence_length + position);
    }
    rows.offsets.push_back(static_cast<std::int32_t>(rows.token_ids.size()));
    rows.lengths.push_back(static_cast<std::int32_t>(length));
    for (const auto place : sample.hidden.places) rows.masked_rows.push_back(first + place);
    const auto& labels = sample.hidden.labels;
    rows.masked_labels.insert(rows.masked_labels.end(), labels.begin(), labels.end());
    rows.first_rows.push_back(first);
    rows.next_labels.push_back(sample.next_label);
  }
  /// Fills up the masked rows of the layout `fixed` with row 0 and label -1.
  void fill_up(Rows& rows) const {
    const auto most = rows.lengths.size() * static_cast<std::size_t>(most_hidden(options_));
    dhp::check(rows.masked_rows.size() <= most, "a micro-batch hides ", rows.masked_rows.size(),
               " tokens, but at most ", most, " can be");
    rows.masked_rows.resize(most, 0);
    rows.masked_labels.resize(most, -1);
  }

  SentencePairs pairs_;
  Vocabulary vocabulary_;
  MaskedLmOptions options_;
  TokenLayout layout_;
};

static_assert(dhp::Batcher<MaskedLmBatcher>);

}  // namespace examples
