// From sentences to micro-batches of tokens, end to end without padding. The side inputs of masked_lm_batcher.hpp for N
// sentences of R tokens, without labels, and
//
//   pooling f64 [N, R]   the weight of a token in its sentence's vector
#pragma once

#include <dhp/data/collate.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace examples {

class SentenceBatcher {
 public:
  using Tokens = std::vector<std::vector<std::int32_t>>;

  /// Each sentence has [CLS] first and at most `longest` tokens. hidden: the id of [MASK], whose words are predicted.
  SentenceBatcher(std::shared_ptr<const Tokens> sentences, std::int64_t longest, bool first_token,
                  std::int32_t hidden)
      : sentences_(std::move(sentences)),
        longest_(longest),
        first_token_(first_token),
        hidden_(hidden) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(sentences_->size()); }

  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    std::vector<std::int32_t> token_ids, positions, offsets{0}, lengths, masked_rows, first_rows;
    std::vector<std::int64_t> row_numbers;
    for (std::size_t n = 0; n < indices.size(); ++n) {
      const auto& tokens = sentences_->at(static_cast<std::size_t>(indices[n]));
      const auto first = static_cast<std::int32_t>(token_ids.size());
      first_rows.push_back(first);
      for (std::size_t position = 0; position < tokens.size(); ++position) {
        if (tokens[position] == hidden_)
          masked_rows.push_back(static_cast<std::int32_t>(token_ids.size()));
        token_ids.push_back(tokens[position]);
        positions.push_back(static_cast<std::int32_t>(position));
        row_numbers.push_back(static_cast<std::int64_t>(n) * longest_ +
                              static_cast<std::int64_t>(position));
      }
      offsets.push_back(static_cast<std::int32_t>(token_ids.size()));
      lengths.push_back(static_cast<std::int32_t>(tokens.size()));
    }
    const auto rows = token_ids.size();
    std::vector<double> pooling(indices.size() * rows, 0);
    for (std::size_t n = 0; n < indices.size(); ++n) {
      const auto counted = first_token_ ? 1 : lengths[n];
      for (std::int32_t row = offsets[n]; row < offsets[n] + counted; ++row)
        pooling[n * rows + static_cast<std::size_t>(row)] = 1.0 / static_cast<double>(counted);
    }
    dhp::HostBatch batch;
    const auto put = [&](const char* name, const auto& values) {
      batch.side.emplace_back(
          name, dhp::HostArray(dhp::Shape{static_cast<std::int64_t>(values.size())}, values));
    };
    put("token_ids", token_ids);
    put("positions", positions);
    put("segments", std::vector<std::int32_t>(rows, 0));
    put("row_numbers", row_numbers);
    put("offsets", offsets);
    put("lengths", lengths);
    put("masked_rows", masked_rows);
    put("first_rows", first_rows);
    batch.side.emplace_back("pooling", dhp::HostArray({static_cast<std::int64_t>(indices.size()),
                                                       static_cast<std::int64_t>(rows)},
                                                      pooling));
    batch.rows_per_sample = longest_;
    return batch;
  }

 private:
  std::shared_ptr<const Tokens> sentences_;
  std::int64_t longest_;
  bool first_token_;
  std::int32_t hidden_;
};

static_assert(dhp::Batcher<SentenceBatcher>);

}  // namespace examples
