// Turns sentences into micro-batches of tokens, end to end without padding. The side inputs of masked_lm_batcher.hpp
// for N sentences, or pairs of them, with R tokens, and
//   labels i32 [N]       class of each sentence; with labels there is no `pooling`
//   pooling f64 [N, R]   the weight of a token in its sentence's vector
#pragma once

#include <dhp/data/collate.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace examples {

struct SentenceTokens {
  std::vector<std::int32_t> ids;  ///< begins with [CLS]
  std::int64_t second_segment =
      0;                    ///< start of the second sentence of a pair; 0: only one sentence
  std::int32_t label = -1;  ///< class; -1: no label
};

struct SentenceBatcherOptions {
  std::int64_t longest = 512;  ///< maximum tokens of a sentence
  bool labelled = false;
  bool first_token = false;  ///< the first token is the sentence's vector; else the mean of all
  std::int32_t hidden = -1;  ///< id of [MASK], whose words are predicted
};

class SentenceBatcher {
 public:
  using Sentences = std::vector<SentenceTokens>;

  SentenceBatcher(std::shared_ptr<const Sentences> sentences, SentenceBatcherOptions options)
      : sentences_(std::move(sentences)), options_(options) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(sentences_->size()); }

  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    std::vector<std::int32_t> token_ids, positions, segments, offsets{0}, lengths, masked_rows,
        first_rows, labels;
    std::vector<std::int64_t> row_numbers;
    std::int64_t token_pairs = 0;  // pairs of tokens that attend to each other
    for (std::size_t n = 0; n < indices.size(); ++n) {
      const auto& sentence = sentences_->at(static_cast<std::size_t>(indices[n]));
      const auto length = static_cast<std::int64_t>(sentence.ids.size());
      first_rows.push_back(static_cast<std::int32_t>(token_ids.size()));
      labels.push_back(sentence.label);
      for (std::int64_t position = 0; position < length; ++position) {
        const auto id = sentence.ids[static_cast<std::size_t>(position)];
        const bool second = sentence.second_segment > 0 && position >= sentence.second_segment;
        if (id == options_.hidden)
          masked_rows.push_back(static_cast<std::int32_t>(token_ids.size()));
        token_ids.push_back(id);
        positions.push_back(static_cast<std::int32_t>(position));
        segments.push_back(second ? 1 : 0);
        row_numbers.push_back(static_cast<std::int64_t>(n) * options_.longest + position);
      }
      offsets.push_back(static_cast<std::int32_t>(token_ids.size()));
      lengths.push_back(static_cast<std::int32_t>(length));
      token_pairs += length * length;
    }
    dhp::HostBatch batch;
    batch.put("token_ids", token_ids);
    batch.put("positions", positions);
    batch.put("segments", segments);
    batch.put("row_numbers", row_numbers);
    batch.put("offsets", offsets);
    batch.put("lengths", lengths);
    batch.put("first_rows", first_rows);
    if (options_.labelled) {
      batch.put("labels", labels);
    } else {
      batch.put("masked_rows", masked_rows);
      batch.side.emplace_back("pooling", pooling(offsets));
    }
    batch.rows_per_sample = options_.longest;
    batch.counts.emplace_back("samples", static_cast<std::int64_t>(indices.size()));
    batch.counts.emplace_back("tokens", static_cast<std::int64_t>(token_ids.size()));
    batch.counts.emplace_back("token_pairs", token_pairs);
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
