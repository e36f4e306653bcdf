// Turns sentences into micro-batches of tokens, end to end without padding. Side inputs beside those of bert_rows.hpp,
// for N sentences, or pairs of them, with R tokens:
//   labels i32 [N]          class of each sentence
// or, in a batch without labels:
//   masked_rows i32 [M]     rows of the M words to predict
//   pooling f64 [N, R]      the weight of each token in each sentence's vector
#pragma once

#include "bert_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace examples {

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
