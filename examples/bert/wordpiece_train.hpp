// Makes a WordPiece vocabulary from a text: starts with its characters and joins, again and again,
// the pair of neighbours that is most frequent inside words (byte-pair encoding, Sennrich et al.
// 2016, arXiv:1508.07909, with ## on what continues a word). Works on word counts; ties go to the
// pair of lower ids, so the same text gives the same vocabulary everywhere.
#pragma once

#include "basic_tokenizer.hpp"
#include "documents.hpp"
#include "vocabulary.hpp"
#include "wordpiece.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

struct WordPieceTraining {
  std::int64_t size = 8192;      ///< tokens at most, special ones included
  std::int64_t least_count = 2;  ///< a pair that is rarer is not joined
  std::int64_t alphabet = 1000;  ///< characters at most, the most frequent; others become [UNK]
  BasicTokenizer basic{};
};

/// The words of a text and how often each occurs, in byte order.
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

/// The joining of pairs; use train_wordpiece().
class WordPieceTrainer {
 public:
  WordPieceTrainer(const std::vector<std::pair<std::string, std::int64_t>>& words,
                   const WordPieceTraining& options)
      : options_(options) {
    for (const auto token : Vocabulary::special_tokens) id_of(std::string(token));
    dhp::check(options.size > static_cast<std::int64_t>(tokens_.size()), "a vocabulary of ",
               options.size, " tokens has no room beside the 5 special ones");
    add_characters(words);
    for (const auto& [word, count] : words) add_word(word, count);
    for (const auto& [pair, place] : pairs_) queue_.push({place.count, pair});
  }

  [[nodiscard]] std::vector<std::string> run() {
    while (static_cast<std::int64_t>(tokens_.size()) < options_.size && !queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count != best.count) {  // it became rarer since it was queued
        if (found->second.count > 0) queue_.push({found->second.count, best.pair});
        continue;
      }
      if (best.count < options_.least_count) break;
      join(best.pair);
    }
    return std::move(tokens_);
  }

 private:
  using Id = std::uint32_t;
  using Pair = std::uint64_t;  // left id, right id
  struct Place {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // that have or had the pair; may repeat
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    friend bool operator<(const Candidate& a,
                          const Candidate& b) {  // the top of the queue is largest
      return a.count != b.count ? a.count < b.count : a.pair > b.pair;
    }
  };
  struct Word {
    std::vector<Id> pieces;
    std::int64_t count = 0;
  };

  static Pair pair_of(Id left, Id right) { return Pair{left} << 32 | right; }

  Id id_of(const std::string& token) {
    const auto [place, fresh] = ids_.try_emplace(token, static_cast<Id>(tokens_.size()));
    if (fresh) tokens_.push_back(token);
    return place->second;
  }

  // take(token) for each character of a word, with ## from the second on.
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
    std::sort(ranked.begin(), ranked.end());  // frequent first, then in byte order
    const auto room = options_.size - static_cast<std::int64_t>(tokens_.size());
    const auto kept = std::min({static_cast<std::int64_t>(ranked.size()), options_.alphabet, room});
    ranked.resize(static_cast<std::size_t>(std::max<std::int64_t>(kept, 0)));
    std::sort(ranked.begin(), ranked.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [count, token] : ranked) id_of(token);
  }

  // A word with a character outside the alphabet teaches nothing: it will be [UNK].
  void add_word(const std::string& text, std::int64_t count) {
    if (count_code_points(text) > WordPiece::longest_word) return;
    Word word{{}, count};
    bool known = true;
    characters(text, [&](const std::string& token) {
      const auto found = ids_.find(token);
      known = known && found != ids_.end();
      if (known) word.pieces.push_back(found->second);
    });
    if (!known || word.pieces.size() < 2) return;
    for (std::size_t at = 0; at + 1 < word.pieces.size(); ++at)
      change(pair_of(word.pieces[at], word.pieces[at + 1]), count, words_.size());
    words_.push_back(std::move(word));
  }

  void change(Pair pair, std::int64_t by, std::size_t word) {
    auto& place = pairs_[pair];
    place.count += by;
    if (by > 0 && (place.words.empty() || place.words.back() != word)) place.words.push_back(word);
  }

  void join(Pair pair) {
    const Id left = static_cast<Id>(pair >> 32);
    const Id right = static_cast<Id>(pair);
    const Id joined = id_of(tokens_[left] + tokens_[right].substr(2));
    const auto where = std::move(pairs_.at(pair).words);
    std::vector<Pair> grown;
    for (const auto number : where) {
      auto& word = words_[number];
      auto& pieces = word.pieces;
      std::size_t to = 0;
      for (std::size_t at = 0; at < pieces.size(); ++at) {
        if (at + 1 == pieces.size() || pieces[at] != left || pieces[at + 1] != right) {
          pieces[to++] = pieces[at];
          continue;
        }
        if (to > 0) {
          change(pair_of(pieces[to - 1], left), -word.count, number);
          grown.push_back(pair_of(pieces[to - 1], joined));
          change(grown.back(), word.count, number);
        }
        if (at + 2 < pieces.size()) {
          change(pair_of(right, pieces[at + 2]), -word.count, number);
          grown.push_back(pair_of(joined, pieces[at + 2]));
          change(grown.back(), word.count, number);
        }
        pieces[to++] = joined;
        ++at;
      }
      pieces.resize(to);
    }
    pairs_.erase(pair);
    std::sort(grown.begin(), grown.end());
    grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
    for (const auto fresh : grown) {
      const auto found = pairs_.find(fresh);
      if (found != pairs_.end() && found->second.count > 0)
        queue_.push({found->second.count, fresh});
    }
  }

  WordPieceTraining options_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, Id> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Place> pairs_;
  std::priority_queue<Candidate> queue_;
};

/// A vocabulary of at most options.size tokens: the special ones, characters in byte order, then
/// joined pieces, frequent first. Smaller where the text has no pair left that is frequent enough.
[[nodiscard]] inline Vocabulary train_wordpiece(const Text& text,
                                                const WordPieceTraining& options = {}) {
  dhp::check(options.least_count >= 1, "train_wordpiece: least_count ", options.least_count,
             "; 1 or more would be right");
  const auto words = count_words(text, options.basic);
  dhp::check(!words.empty(), "train_wordpiece: the text holds no word");
  return Vocabulary(WordPieceTrainer(words, options).run(), "trained vocabulary");
}

}  // namespace examples
