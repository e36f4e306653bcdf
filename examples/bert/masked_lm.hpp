// The samples of BERT's pre-training (Devlin et al. 2019): [CLS] A [SEP] B [SEP], where B follows A or is random, with
// some tokens masked. Random choices depend only on (seed, epoch, sample index).
//
// MaskedLmBatcher turns them into micro-batches. All layouts hold the same samples, masks and row numbers. Side inputs
// beside those of bert_rows.hpp, i32, for N samples with M hidden tokens:
//
//   masked_rows, masked_labels [M]       rows of the hidden tokens, in order, and the original tokens
//   next_labels [N]                      0: B follows A, 1: B is random
//
// In the layout `fixed`, M is always N * max_hidden(). Unused entries have row 0, a [CLS] that is never hidden, and
// the label -1, which losses ignore.
#pragma once

#include <dhp/data/sample_random.hpp>

#include "bert_rows.hpp"
#include "sentence_pairs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace examples {

struct MaskedLmOptions {
  std::int64_t sequence_length = 128;  ///< maximum tokens of a sample, three special ones included
  double hidden = 0.15;                ///< share of the tokens to predict
  double as_mask = 0.8;                ///< share of the chosen tokens that [MASK] replaces
  double as_random = 0.1;              ///< share of them that a random token replaces; others stay
  bool whole_words = false;            ///< hide all pieces of a word or none
  std::uint64_t seed = 0;
};

/// Returns the maximum number of hidden tokens of a sample: options.hidden of the tokens that are not special, rounded
/// up. With whole words it is the number of all such tokens, since a long word may exceed the share.
[[nodiscard]] inline std::int64_t max_hidden(const MaskedLmOptions& options) {
  const auto candidates = options.sequence_length - 3;
  if (options.whole_words) return candidates;
  return static_cast<std::int64_t>(std::ceil(options.hidden * static_cast<double>(candidates)));
}

/// The hidden tokens of one sample: places in ascending order, and their original tokens.
struct HiddenTokens {
  std::vector<std::int32_t> places;
  std::vector<std::int32_t> labels;
};

/// Hides tokens of a sequence in place; special tokens are never hidden. The expected number of hidden tokens is
/// exactly options.hidden of the others: a fraction is rounded up or down at random.
[[nodiscard]] inline HiddenTokens hide_tokens(std::span<std::int32_t> tokens,
                                              const Vocabulary& vocabulary,
                                              const MaskedLmOptions& options,
                                              dhp::SampleRandom& random) {
  std::vector<dhp::Range> units;  // single tokens, or whole words
  std::int64_t candidates = 0;
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    if (vocabulary.is_special(tokens[at])) continue;
    const auto place = static_cast<std::int64_t>(at);
    ++candidates;
    const bool goes_on = options.whole_words && !units.empty() && units.back().last == place &&
                         vocabulary.continues(tokens[at]);
    if (goes_on) units.back().last = place + 1;
    else units.push_back({place, place + 1});
  }
  auto left = static_cast<std::int64_t>(options.hidden * static_cast<double>(candidates) +
                                        random.uniform());
  std::vector<std::int32_t> places;
  for (std::size_t drawn = 0; drawn < units.size() && left > 0; ++drawn) {
    const auto rest = static_cast<std::uint32_t>(units.size() - drawn);
    std::swap(units[drawn], units[drawn + random.below(rest)]);
    const auto unit = units[drawn];
    // A word longer than the `left` tokens is hidden with probability left / length, which keeps the expected number.
    if (unit.size() > left &&
        !random.chance(static_cast<double>(left) / static_cast<double>(unit.size())))
      break;
    left -= unit.size();
    for (auto place = unit.first; place < unit.last; ++place)
      places.push_back(static_cast<std::int32_t>(place));
  }
  std::sort(places.begin(), places.end());
  HiddenTokens result{std::move(places), {}};
  for (const auto place : result.places) {
    auto& token = tokens[static_cast<std::size_t>(place)];
    result.labels.push_back(token);
    const double fate = random.uniform();
    if (fate < options.as_mask) {
      token = vocabulary.mask();
    } else if (fate < options.as_mask + options.as_random) {
      do
        token =
            static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocabulary.size())));
      while (vocabulary.is_special(token));
    }
  }
  return result;
}

struct MaskedLmSample : SentenceTokens {
  HiddenTokens hidden{};
  std::int32_t next_label = 0;  ///< 0: B follows A; 1: B is random
};

/// Makes sample `index` of epoch `epoch`.
[[nodiscard]] inline MaskedLmSample masked_lm_sample(const SentencePairs& pairs,
                                                     const Vocabulary& vocabulary,
                                                     const MaskedLmOptions& options,
                                                     std::int64_t index, std::int64_t epoch) {
  const auto pair = pairs.get(index);
  dhp::SampleRandom pairing(options.seed, epoch, index, dhp::DataUse::pair);
  const bool random = pairing.chance(0.5);
  const auto second = pairs.tokens(random ? pairs.random_second(index, pairing) : pair.second);
  MaskedLmSample result{
      joined(pairs.tokens(pair.first), second, options.sequence_length, vocabulary)};
  result.next_label = random ? 1 : 0;
  dhp::SampleRandom masking(options.seed, epoch, index, dhp::DataUse::mask);
  result.hidden = hide_tokens(result.ids, vocabulary, options, masking);
  return result;
}

/// A model that predicts tokens by frequency alone, with add-one smoothing; losses are in nats. A masked language model
/// must reach a lower loss to show that it uses context.
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

/// Counts the tokens that training can hide: all but the special ones, in pairs of sentences as cut for a sample.
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

/// Returns the unigram's mean loss on the hidden tokens of the first `samples` samples (0: all) in epoch 0, as in an
/// evaluation. NaN if nothing is hidden.
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
        const auto result = sample(index, epoch);
        const auto& [places, labels] = result.hidden;
        for (const auto place : places) masked_rows.push_back(rows.count() + place);
        masked_labels.insert(masked_labels.end(), labels.begin(), labels.end());
        next_labels.push_back(result.next_label);
        rows.add(result, pad);
      });
    auto batch = rows.batch();
    batch.counts.emplace(batch.counts.begin(), "masked_tokens", std::ssize(masked_rows));
    if (layout_ == TokenLayout::fixed) {
      const auto most = indices.size() * static_cast<std::size_t>(max_hidden(options_));
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
