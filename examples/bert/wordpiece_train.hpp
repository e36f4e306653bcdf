// Makes a WordPiece vocabulary from a text: starts with the characters and repeatedly joins the most frequent pair of
// neighbours inside words (byte-pair encoding, Sennrich et al. 2016, arXiv:1508.07909, with ## before pieces that
// continue a word). It works on word counts. Ties go to the pair of lower ids, so the same text gives the same
// vocabulary everywhere.
#pragma once

#include "../data/documents.hpp"
#include "../data/pair_joiner.hpp"
#include "basic_tokenizer.hpp"
#include "vocabulary.hpp"
#include "wordpiece.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

struct WordPieceTraining {
  std::int64_t size = 8192;      ///< maximum tokens, with special ones
  std::int64_t least_count = 2;  ///< minimum count of a pair to join
  std::int64_t alphabet = 1000;  ///< maximum number of characters; rarer ones become [UNK]
  BasicTokenizer basic{};
  std::string name = "train_wordpiece";  ///< of the text, in errors
};

/// Returns the words of a text and their counts, in byte order.
[[nodiscard]] inline std::vector<std::pair<std::string, std::int64_t>> count_words(
    const Text& text, const BasicTokenizer& basic = {}) {
  std::unordered_map<std::string, std::int64_t> counts;
  std::string key;
  for (std::int64_t number = 0; number < text.sentences(); ++number)
    basic.words(sentence_text(text, number), [&](std::string_view word) {
      key = word;
      ++counts[key];
    });
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

/// Holds the characters of words and joins pairs of them; use train_wordpiece().
class WordPieceTrainer {
 public:
  WordPieceTrainer(const std::vector<std::pair<std::string, std::int64_t>>& words,
                   const WordPieceTraining& options)
      : options_(options) {
    for (const auto token : Vocabulary::special_tokens) joiner_.id_of(std::string(token));
    add_characters(words);
    for (const auto& [word, count] : words) add_word(word, count);
  }

  [[nodiscard]] std::vector<std::string> run() {
    joiner_.run(options_.size, options_.least_count);
    return joiner_.tokens();
  }

 private:
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(joiner_.tokens().size());
  }
  // Calls take(token) for each character of a word, with ## from the second on.
  template <class Take>
  static void characters(std::string_view word, Take&& take) {
    for (std::size_t at = 0; at < word.size();) {
      const auto size = decode_utf8(word, at).size_bytes;
      take((at > 0 ? "##" : "") + std::string(word.substr(at, size)));
      at += size;
    }
  }

  void add_characters(const std::vector<std::pair<std::string, std::int64_t>>& words) {
    std::map<std::string, std::int64_t> counts;
    for (const auto& word : words)
      characters(word.first, [&](const std::string& token) { counts[token] += word.second; });
    std::vector<std::pair<std::int64_t, std::string>> ranked;
    for (const auto& [token, count] : counts) ranked.emplace_back(-count, token);
    std::sort(ranked.begin(), ranked.end());  // most frequent first, then in byte order
    const auto room = options_.size - size();
    const auto kept = std::min({static_cast<std::int64_t>(ranked.size()), options_.alphabet, room});
    ranked.resize(static_cast<std::size_t>(std::max<std::int64_t>(kept, 0)));
    std::sort(ranked.begin(), ranked.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [count, token] : ranked) joiner_.id_of(token);
  }

  // Skips a word with a character outside the alphabet, since it will be [UNK].
  void add_word(const std::string& text, std::int64_t count) {
    if (count_code_points(text) > WordPiece::longest_word) return;
    std::vector<PairJoiner::Id> pieces;
    bool known = true;
    characters(text, [&](const std::string& token) {
      const auto* const found = joiner_.find(token);
      known = known && found != nullptr;
      if (known) pieces.push_back(*found);
    });
    if (known) joiner_.add_word(std::move(pieces), count);
  }

  WordPieceTraining options_;
  PairJoiner joiner_{[](const auto& left, const auto& right) { return left + right.substr(2); }};
};

/// Makes a vocabulary of at most options.size tokens: the special ones, characters in byte order, then joined pieces,
/// most frequent first. It is smaller if no pair is left that is frequent enough.
[[nodiscard]] inline Vocabulary train_wordpiece(const Text& text,
                                                const WordPieceTraining& options = {}) {
  const auto words = count_words(text, options.basic);
  dhp::check(!words.empty(), options.name, ": the text holds no word");
  return Vocabulary(WordPieceTrainer(words, options).run(), "trained vocabulary");
}

}  // namespace examples
