// The unigram cross-entropy: what a model that knows only how frequent each token is would lose on the
// hidden tokens of a held-out set. A masked language model that does not come below it uses no context.
#pragma once

#include <dhp/data/masked_lm.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace dhp {

/// How often each token occurs; cross-entropy in nats, with add-one smoothing.
class Unigram {
 public:
  explicit Unigram(std::int64_t vocabulary_size)
      : counts_(static_cast<std::size_t>(vocabulary_size), 1), total_(vocabulary_size) {}

  void add(std::int32_t token) {
    ++counts_.at(static_cast<std::size_t>(token));
    ++total_;
  }
  [[nodiscard]] double loss_of(std::int32_t token) const {
    return std::log(static_cast<double>(total_)) -
           std::log(static_cast<double>(counts_.at(static_cast<std::size_t>(token))));
  }

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t total_;
};

/// Frequencies of the tokens that can be hidden in training: both sentences of each pair, shortened as in
/// a sample, without special tokens.
[[nodiscard]] inline Unigram unigram_of(const SentencePairs& pairs, const Vocabulary& vocabulary,
                                        const MaskedLmOptions& options) {
  Unigram unigram(vocabulary.size());
  for (std::int64_t index = 0; index < pairs.size(); ++index) {
    const auto pair = pairs.get(index);
    auto first = static_cast<std::int64_t>(pairs.tokens(pair.first).size());
    auto second = static_cast<std::int64_t>(pairs.tokens(pair.second).size());
    truncate_pair(options.sequence_length - 3, first, second);
    for (const auto& [sentence, size] : {std::pair(pair.first, first), {pair.second, second}})
      for (const auto token : pairs.tokens(sentence).first(static_cast<std::size_t>(size)))
        if (!vocabulary.is_special(token)) unigram.add(token);
  }
  return unigram;
}

/// Mean over the hidden tokens of the first `samples` samples (0: of all) in epoch 0, in nats; this is
/// what an evaluation of the same samples sees. NaN where nothing is hidden.
[[nodiscard]] inline double unigram_cross_entropy(const Unigram& unigram,
                                                  const SentencePairs& pairs,
                                                  const Vocabulary& vocabulary,
                                                  const MaskedLmOptions& options,
                                                  std::int64_t samples = 0) {
  double sum = 0;
  std::int64_t count = 0;
  const auto last = samples > 0 ? std::min(samples, pairs.size()) : pairs.size();
  for (std::int64_t index = 0; index < last; ++index) {
    const auto sample = masked_lm_sample(pairs, vocabulary, options, index, 0);
    for (const auto label : sample.hidden.labels) sum += unigram.loss_of(label);
    count += static_cast<std::int64_t>(sample.hidden.labels.size());
  }
  return sum / static_cast<double>(count);
}

}  // namespace dhp
