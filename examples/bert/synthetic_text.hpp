// Made-up text with a structure that a model can learn: each document keeps to the words of one topic, and most words
// determine the next one. It serves tests, and trials of a program without data.
#pragma once

#include <dhp/data/sample_random.hpp>

#include "../data/documents.hpp"
#include "vocabulary.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace examples {

struct SyntheticTextOptions {
  std::int64_t documents = 512;
  std::int64_t sentences = 4;  ///< sentences of a document
  std::int64_t shortest = 6;   ///< minimum tokens of a sentence
  std::int64_t longest = 24;
  std::int64_t vocabulary_size = 512;  ///< special tokens included
  std::int64_t topics = 8;
  double order = 0.8;  ///< share of words that the previous word determines, in [0, 1]
  std::uint64_t seed = 0;
};

/// Returns the vocabulary [PAD] [UNK] [CLS] [SEP] [MASK] w0 w1 ...
[[nodiscard]] inline Vocabulary synthetic_vocabulary(std::int64_t size) {
  std::vector<std::string> tokens(Vocabulary::special_tokens.begin(),
                                  Vocabulary::special_tokens.end());
  for (std::int64_t word = 0; word < size - 5; ++word) tokens.push_back("w" + std::to_string(word));
  return Vocabulary(std::move(tokens), "synthetic vocabulary");
}

/// Makes the text; document d depends only on (seed, d).
[[nodiscard]] inline TokenText synthetic_text(const SyntheticTextOptions& options) {
  const auto& o = options;
  const auto special = static_cast<std::int64_t>(Vocabulary::special_tokens.size());
  const auto words = (o.vocabulary_size - special) / o.topics;  // words of a topic
  dhp::check(words >= 2, "synthetic text: ", o.vocabulary_size, " tokens are too few for ",
             o.topics, " topics; ", special + 2 * o.topics, " or more would be right");
  TokenText text;
  std::vector<std::int32_t> sentence;
  for (std::int64_t document = 0; document < o.documents; ++document) {
    dhp::SampleRandom random(o.seed, 0, document, dhp::DataUse::synthesize);
    const std::int64_t topic = random.below(static_cast<std::uint32_t>(o.topics));
    std::int64_t word = 0;  // number of the word within its topic
    for (std::int64_t number = 0; number < o.sentences; ++number) {
      sentence.clear();
      const auto spread = static_cast<std::uint32_t>(o.longest - o.shortest + 1);
      const auto length = o.shortest + static_cast<std::int64_t>(random.below(spread));
      for (std::int64_t at = 0; at < length; ++at) {
        if (at > 0 && random.chance(o.order)) {
          word = (word * 5 + 3) % words;
        } else {  // lower numbers are more frequent
          const double draw = random.uniform();
          word = static_cast<std::int64_t>(draw * draw * static_cast<double>(words));
        }
        sentence.push_back(static_cast<std::int32_t>(special + topic * words + word));
      }
      text.add_sentence(sentence);
    }
    text.end_document();
  }
  return text;
}

}  // namespace examples
