// Pairs of sentences for next-sentence prediction: a dataset over a tokenized text. A sample is a sentence and its
// successor. In each epoch, masked_lm.hpp replaces some successors by random sentences.
#pragma once

#include <dhp/data/dataset.hpp>
#include <dhp/data/sample_random.hpp>

#include "../data/documents.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace examples {

/// How sentences of a document are paired.
enum class Pairing {
  next,  ///< each sentence and the one after it
  first  ///< the first sentence and each of the others: a definition and its examples
};

struct SentencePair {
  std::int64_t first = 0;   ///< index of the pair's first sentence
  std::int64_t second = 0;  ///< index of the pair's second sentence
  std::int64_t part = 0;    ///< index of the part of the text that holds both sentences
};

/// Cheap to copy: text and pairs are shared.
class SentencePairs {
 public:
  using Sample = SentencePair;

  SentencePairs() = default;  ///< an empty dataset
  /// Pairs the sentences within each of `parts`, which are ranges of the text's sentences.
  SentencePairs(std::shared_ptr<const TokenText> text, const std::vector<dhp::Range>& parts,
                Pairing pairing)
      : text_(std::move(text)) {
    auto pairs = std::make_shared<std::vector<SentencePair>>();
    for (std::size_t part = 0; part < parts.size(); ++part)
      for (auto second = parts[part].first + 1; second < parts[part].last; ++second)
        pairs->push_back({pairing == Pairing::next ? second - 1 : parts[part].first, second,
                          static_cast<std::int64_t>(part)});
    dhp::check(
        pairs->size() >= 2, "the text has ", pairs->size(),
        " pairs of sentences that belong together; at least 2 are needed on each side of the "
        "held-out split: give a longer text, or one with more sentences to a document");
    pairs_ = std::move(pairs);
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(pairs_->size()); }
  [[nodiscard]] SentencePair get(std::int64_t index) const {
    dhp::detail::check_sample_index(index, size());
    return (*pairs_)[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::span<const std::int32_t> tokens(std::int64_t sentence) const {
    return text_->sentence(sentence);
  }

  /// Returns a wrong successor for sample `index`: the second sentence of another pair, if possible from another part.
  [[nodiscard]] std::int64_t random_second(std::int64_t index, dhp::SampleRandom& random) const {
    constexpr int tries = 16;
    const auto own = get(index);
    const auto bound = static_cast<std::uint32_t>(std::min<std::int64_t>(size(), 0xFFFF'FFFF));
    for (int at = 0; at < tries; ++at) {
      const auto other = get(random.below(bound));
      if (other.part != own.part) return other.second;
    }
    const auto other = get((index + 1 + random.below(bound - 1)) % size());  // any pair but its own
    return other.second;
  }

 private:
  std::shared_ptr<const TokenText> text_;
  std::shared_ptr<const std::vector<SentencePair>> pairs_ =
      std::make_shared<std::vector<SentencePair>>();
};

/// Returns the parts for a split: documents, or pieces of 64 to 127 sentences of longer ones. A text of few documents
/// is cut into about 100 pieces, so that even one document can be split. Each cut loses a pair.
[[nodiscard]] inline std::vector<dhp::Range> parts_of(const TokenText& text) {
  constexpr std::int64_t few = 20;
  constexpr std::int64_t most = 64;
  const auto piece =
      text.size() >= few ? most : std::clamp<std::int64_t>(text.sentences() / 100, 2, most);
  std::vector<dhp::Range> parts;
  for (std::int64_t document = 0; document < text.size(); ++document) {
    const dhp::Range whole = text.sentences_of(document);
    auto first = whole.first;
    while (first < whole.last) {
      const auto rest = whole.last - first;
      const auto last = rest < 2 * piece ? whole.last : first + piece;
      parts.push_back({first, last});
      first = last;
    }
  }
  return parts;
}

/// Splits into training and held-out pairs that share no sentence. In the random order of `seed`, the first parts are
/// held out until they hold the fraction of all pairs, and at least 2 pairs (none for fraction 0). Both sides keep that
/// order, so their first samples are representative.
[[nodiscard]] inline dhp::DatasetSplit<SentencePairs> split_sentence_pairs(
    std::shared_ptr<const TokenText> text, Pairing pairing, double held_out, std::uint64_t seed) {
  dhp::check(held_out >= 0 && held_out < 1, "a held-out fraction lies in [0, 1), got ", held_out);
  std::vector<dhp::Range> parts;
  std::int64_t pairs = 0;
  for (const dhp::Range part : parts_of(*text)) {
    if (part.size() < 2) continue;  // a single sentence, such as a definition without example
    parts.push_back(part);
    pairs += part.size() - 1;
  }
  const std::int64_t least = held_out > 0 ? 2 : 0;
  auto wanted = std::max(least, static_cast<std::int64_t>(held_out * static_cast<double>(pairs)));
  const dhp::Permutation order(static_cast<std::int64_t>(parts.size()), seed, -1);
  std::vector<dhp::Range> train;
  std::vector<dhp::Range> kept;
  for (std::int64_t at = 0; at < order.size(); ++at) {
    const dhp::Range part = parts[static_cast<std::size_t>(order(at))];
    (wanted > 0 ? kept : train).push_back(part);
    wanted -= part.size() - 1;
  }
  return {SentencePairs(text, train, pairing),
          held_out > 0 ? SentencePairs(text, kept, pairing) : SentencePairs()};
}

}  // namespace examples
