// Turns sentence pairs into BERT's micro-batches. All layouts hold the same samples, masks and row numbers. Side inputs
// beside those of bert_rows.hpp, i32, for N samples with M hidden tokens:
//
//   masked_rows, masked_labels [M]       rows of the hidden tokens, in order, and the original tokens
//   next_labels [N]                      0: B follows A, 1: B is random
//
// In the layout `fixed`, M is always N * most_hidden(). Unused entries have row 0, a [CLS] that is never hidden, and
// the label -1, which losses ignore.
#pragma once

#include "masked_lm.hpp"

#include <cstdint>
#include <optional>
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
    const auto pad =
        layout_ == TokenLayout::packed ? std::nullopt : std::optional(vocabulary_.pad());
    BertRows rows(options_.sequence_length);
    std::vector<std::int32_t> masked_rows, masked_labels, next_labels;
    for (const auto index : indices)
      dhp::naming_sample(index, [&] {
        const auto made = sample(index, epoch);
        const auto& [places, labels] = made.hidden;
        for (const auto place : places) masked_rows.push_back(rows.count() + place);
        masked_labels.insert(masked_labels.end(), labels.begin(), labels.end());
        next_labels.push_back(made.next_label);
        rows.add(made, pad);
      });
    auto batch = rows.batch();
    batch.counts.emplace(batch.counts.begin(), "masked_tokens", std::ssize(masked_rows));
    if (layout_ == TokenLayout::fixed) {
      const auto most = indices.size() * static_cast<std::size_t>(most_hidden(options_));
      dhp::check(masked_rows.size() <= most, "a micro-batch hides ", masked_rows.size(),
                 " tokens, but at most ", most, " can be");
      masked_rows.resize(most, 0);
      masked_labels.resize(most, -1);
    }
    batch.put("masked_rows", masked_rows);
    batch.put("masked_labels", masked_labels);
    batch.put("next_labels", next_labels);
    return batch;
  }

 private:
  SentencePairs pairs_;
  Vocabulary vocabulary_;
  MaskedLmOptions options_;
  TokenLayout layout_;
};

static_assert(dhp::Batcher<MaskedLmBatcher>);

}  // namespace examples
