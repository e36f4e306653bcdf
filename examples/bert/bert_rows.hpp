// BERT's samples and micro-batches. A micro-batch of N samples has one row per token, R in all. Side inputs, i32
// mostly:
//
//   token_ids, positions, segments [R]   row_numbers i64 [R]: (global sample)*rows_per_sample + position
//   offsets [N+1], lengths [N]           rows of sample n: offsets[n] .. offsets[n] + lengths[n]
//   first_rows [N]                       row of [CLS]
//
// SentenceBatcher puts sentences, or pairs of them, end to end without padding. Further side inputs:
//
//   labels i32 [N]                       class of each sentence; or, in a batch without labels:
//   masked_rows i32 [M]                  rows of the M words to predict
//   pooling f64 [N, R]                   the weight of each token in each sentence's vector
#pragma once

#include <dhp/data/collate.hpp>

#include "vocabulary.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace examples {

/// The tokens of one sample.
struct SentenceTokens {
  std::vector<std::int32_t> ids;  ///< begins with [CLS]
  std::int64_t second_segment =
      0;                    ///< start of the second sentence of a pair; 0: only one sentence
  std::int32_t label = -1;  ///< class; -1: no label
};

/// Cuts tokens off the end of the longer of two sentences, repeatedly, until both together fit into `room` tokens. If
/// room is odd, the longer one keeps a token more, of equal ones the second: the cut of Hugging Face's tokenizers.
inline void truncate_pair(std::int64_t room, std::int64_t& first, std::int64_t& second) {
  if (first + second <= room) return;
  auto& shorter = first > second ? second : first;
  auto& longer = first > second ? first : second;
  shorter = std::min(shorter, room / 2);
  longer = room - shorter;
}

/// Returns [CLS] first [SEP], or [CLS] first [SEP] second [SEP]. Cuts sentences at their ends if it exceeds `longest`.
[[nodiscard]] inline SentenceTokens joined(
    std::span<const std::int32_t> first, const std::optional<std::span<const std::int32_t>>& second,
    std::int64_t longest, const Vocabulary& words) {
  std::int64_t of_first = std::ssize(first), of_second = second ? std::ssize(*second) : 0;
  if (second) truncate_pair(longest - 3, of_first, of_second);
  else of_first = std::min(of_first, longest - 2);
  SentenceTokens result{.ids = {words.classify()}};
  result.ids.insert(result.ids.end(), first.begin(), first.begin() + of_first);
  result.ids.push_back(words.separator());
  if (!second) return result;
  result.second_segment = std::ssize(result.ids);
  result.ids.insert(result.ids.end(), second->begin(), second->begin() + of_second);
  result.ids.push_back(words.separator());
  return result;
}

class BertRows {
 public:
  explicit BertRows(std::int64_t rows_per_sample) : per_sample_(rows_per_sample) {}

  /// Returns the number of rows so far.
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(ids_.size()); }
  /// Appends a sample. If `padded` is a token, copies of it fill the sample up to rows_per_sample rows.
  void add(const SentenceTokens& sample, std::optional<std::int32_t> padded = {}) {
    const auto length = std::ssize(sample.ids);
    const auto rows = padded ? per_sample_ : length;
    dhp::check(count() <= std::numeric_limits<std::int32_t>::max() - rows,
               "a micro-batch holds more rows than 32-bit numbers; make it smaller");
    const auto number = std::ssize(lengths_) * per_sample_;
    first_rows_.push_back(count());
    for (std::int64_t position = 0; position < rows; ++position) {
      const bool real = position < length;
      const bool second = sample.second_segment > 0 && position >= sample.second_segment;
      ids_.push_back(real ? sample.ids[static_cast<std::size_t>(position)] : *padded);
      positions_.push_back(static_cast<std::int32_t>(position));
      segments_.push_back(real && second ? 1 : 0);
      numbers_.push_back(number + position);
    }
    offsets_.push_back(count());
    lengths_.push_back(static_cast<std::int32_t>(length));
    tokens_ += length;
    pairs_ += length * length;
  }
  [[nodiscard]] const std::vector<std::int32_t>& offsets() const { return offsets_; }
  /// Returns a batch of these rows, with their counts.
  [[nodiscard]] dhp::HostBatch batch() const {
    dhp::HostBatch batch;
    batch.put("token_ids", ids_);
    batch.put("positions", positions_);
    batch.put("segments", segments_);
    batch.put("row_numbers", numbers_);
    batch.put("offsets", offsets_);
    batch.put("lengths", lengths_);
    batch.put("first_rows", first_rows_);
    batch.rows_per_sample = per_sample_;
    batch.counts = {
        {"samples", std::ssize(lengths_)}, {"tokens", tokens_}, {"token_pairs", pairs_}};
    return batch;
  }

 private:
  std::int64_t per_sample_;
  std::vector<std::int32_t> ids_, positions_, segments_, offsets_{0}, lengths_, first_rows_;
  std::vector<std::int64_t> numbers_;  // relative to the batch's first row; upload() adds the rest
  std::int64_t tokens_ = 0;            // without padding
  std::int64_t pairs_ = 0;             // pairs of tokens that attend to each other
};

struct SentenceBatcherOptions {
  std::int64_t longest = 512;  ///< maximum tokens of a sentence
  bool labeled = false;
  bool first_token = false;  ///< the first token is the sentence's vector; else the mean of all
  std::int32_t hidden = -1;  ///< id of [MASK], in whose place words are predicted; -1: none
};

class SentenceBatcher {
 public:
  using Sentences = std::vector<SentenceTokens>;

  SentenceBatcher(std::shared_ptr<const Sentences> sentences, SentenceBatcherOptions options)
      : sentences_(std::move(sentences)), options_(options) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(sentences_->size()); }

  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    BertRows rows(options_.longest);
    std::vector<std::int32_t> masked_rows, labels;
    for (const auto index : indices) {
      const auto& sentence = sentences_->at(static_cast<std::size_t>(index));
      for (std::int32_t at = 0; at < std::ssize(sentence.ids); ++at)
        if (sentence.ids[static_cast<std::size_t>(at)] == options_.hidden)
          masked_rows.push_back(rows.count() + at);
      labels.push_back(sentence.label);
      rows.add(sentence);
    }
    auto batch = rows.batch();
    if (options_.labeled) {
      batch.put("labels", labels);
    } else {
      batch.put("masked_rows", masked_rows);
      batch.side.emplace_back("pooling", pooling(rows.offsets()));
    }
    return batch;
  }

 private:
  [[nodiscard]] dhp::HostArray pooling(const std::vector<std::int32_t>& offsets) const {
    const auto sentences = static_cast<std::int64_t>(offsets.size()) - 1;
    const std::int64_t rows = offsets.back();
    std::vector<double> weights(static_cast<std::size_t>(sentences * rows), 0);
    for (std::int64_t n = 0; n < sentences; ++n) {
      const auto first = offsets[static_cast<std::size_t>(n)];
      const auto counted =
          options_.first_token ? 1 : offsets[static_cast<std::size_t>(n) + 1] - first;
      std::fill_n(weights.begin() + n * rows + first, counted, 1.0 / counted);
    }
    return {{sentences, rows}, weights};
  }

  std::shared_ptr<const Sentences> sentences_;
  SentenceBatcherOptions options_;
};

static_assert(dhp::Batcher<SentenceBatcher>);

}  // namespace examples
