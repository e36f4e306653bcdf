// Makes a WordPiece vocabulary from a text: starts with the characters and repeatedly joins the most frequent pair of
// neighbors inside words (byte-pair encoding, Sennrich et al. 2016, arXiv:1508.07909, with ## before pieces that
// continue a word). It works on word counts. Ties go to the pair of lower ids, so the same text gives the same
// vocabulary everywhere.
#pragma once

#include "../data/documents.hpp"
#include "../data/pair_joiner.hpp"
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
  std::int64_t size = 8192;              ///< maximum tokens, with special ones
  std::int64_t alphabet = 1000;          ///< maximum number of characters; rarer ones become [UNK]
  std::string name = "train_wordpiece";  ///< the text's name in errors
};

/// Returns the words of a text and their counts, in byte order.
[[nodiscard]] inline std::vector<std::pair<std::string, std::int64_t>> count_words(
    const Text& text) {
  std::unordered_map<std::string, std::int64_t> counts;
  std::string key;
  for (std::int64_t number = 0; number < text.sentences(); ++number)
    BasicTokenizer().words(sentence_text(text, number), [&](std::string_view word) {
      key = word;
      ++counts[key];
    });
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

/// Calls take(token) for each character of a word, with ## from the second on.
void for_characters(std::string_view word, auto&& take) {
  for (std::size_t at = 0; at < word.size();) {
    const auto size = decode_utf8(word, at).size_bytes;
    take((at > 0 ? "##" : "") + std::string(word.substr(at, size)));
    at += size;
  }
}

/// Returns at most options.size tokens from words and their counts: the special ones, characters in byte order, then
/// joined pieces in the order of joining. It stops earlier if no frequent pair is left.
[[nodiscard]] inline std::vector<std::string> joined_pieces(
    const std::vector<std::pair<std::string, std::int64_t>>& words,
    const WordPieceTraining& options) {
  PairJoiner joiner([](const auto& left, const auto& right) { return left + right.substr(2); });
  for (const auto token : Vocabulary::special_tokens) joiner.id_of(std::string(token));
  std::map<std::string, std::int64_t> counts;
  for (const auto& [word, count] : words)
    for_characters(word, [&, times = count](const std::string& token) { counts[token] += times; });
  std::vector<std::pair<std::int64_t, std::string>> ranked;
  for (const auto& [token, count] : counts) ranked.emplace_back(-count, token);
  std::sort(ranked.begin(), ranked.end());  // most frequent first, then in byte order
  const auto room = std::max<std::int64_t>(options.size - std::ssize(joiner.tokens()), 0);
  ranked.resize(static_cast<std::size_t>(std::min({std::ssize(ranked), options.alphabet, room})));
  std::ranges::sort(ranked, {}, &std::pair<std::int64_t, std::string>::second);
  for (const auto& [count, token] : ranked) joiner.id_of(token);

  for (const auto& [word, count] : words) {
    if (count_code_points(word) > WordPiece::longest_word) continue;
    std::vector<PairJoiner::Id> pieces;
    bool known = true;  // a word with a character outside the alphabet will be [UNK]
    for_characters(word, [&](const std::string& token) {
      const auto* const found = joiner.find(token);
      known = known && found != nullptr;
      if (known) pieces.push_back(*found);
    });
    if (known) joiner.add_word(std::move(pieces), count);
  }
  joiner.run(options.size);
  return joiner.tokens();
}

/// Makes a vocabulary of the words of a text.
[[nodiscard]] inline Vocabulary train_wordpiece(const Text& text,
                                                const WordPieceTraining& options = {}) {
  const auto words = count_words(text);
  dhp::check(!words.empty(), options.name, ": the text holds no word");
  return Vocabulary(joined_pieces(words, options), "trained vocabulary");
}

}  // namespace examples
