// PairJoiner finds a vocabulary of pieces: it repeatedly joins the most frequent pair of neighbors in the words of a
// text (Sennrich et al. 2016). Of equally frequent pairs it joins the one whose pieces were found first, so the same
// words give the same vocabulary everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

class PairJoiner {
 public:
  using Id = std::uint32_t;
  /// Makes the token that joins a left and a right token.
  using Join = std::function<std::string(const std::string&, const std::string&)>;

  explicit PairJoiner(Join join) : join_(std::move(join)) {}

  /// Returns the id of a token, which it adds if it is new.
  Id id_of(const std::string& token) {
    const auto [place, fresh] = ids_.try_emplace(token, static_cast<Id>(tokens_.size()));
    if (fresh) tokens_.push_back(token);
    return place->second;
  }
  /// Returns the id of a token, or null if there is none.
  [[nodiscard]] const Id* find(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? nullptr : &found->second;
  }
  void add_word(std::vector<Id> pieces, std::int64_t count) {
    if (pieces.size() < 2) return;
    for (std::size_t at = 0; at + 1 < pieces.size(); ++at)
      change(pair_of(pieces[at], pieces[at + 1]), count, words_.size());
    words_.push_back({std::move(pieces), count});
  }

  /// Joins until there are `size` tokens, or no pair occurs twice.
  void run(std::int64_t size) {
    for (const auto& [pair, place] : pairs_) queue_.push({place.count, pair});
    while (static_cast<std::int64_t>(tokens_.size()) < size && !queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count != best.count) {  // the pair became rarer after it was queued
        if (found->second.count > 0) queue_.push({found->second.count, best.pair});
        continue;
      }
      if (best.count < 2) break;
      join(best.pair);
    }
  }

  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }
  /// Returns the joined pairs, in order.
  [[nodiscard]] const std::vector<std::pair<Id, Id>>& joined() const { return joined_; }

 private:
  using Pair = std::uint64_t;  // left id, right id
  struct Place {
    std::int64_t count = 0;
    std::vector<std::size_t> words;  // words with the pair, now or before; may repeat
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    friend bool operator<(const Candidate& a,
                          const Candidate& b) {  // the largest is the top of the queue
      return a.count != b.count ? a.count < b.count : a.pair > b.pair;
    }
  };
  struct Word {
    std::vector<Id> pieces;
    std::int64_t count = 0;
  };

  static Pair pair_of(Id left, Id right) { return Pair{left} << 32 | right; }

  void change(Pair pair, std::int64_t by, std::size_t word) {
    auto& place = pairs_[pair];
    place.count += by;
    if (by > 0 && (place.words.empty() || place.words.back() != word)) place.words.push_back(word);
  }

  void join(Pair pair) {
    const Id left = static_cast<Id>(pair >> 32);
    const Id right = static_cast<Id>(pair);
    const Id joined = id_of(join_(tokens_[left], tokens_[right]));
    joined_.emplace_back(left, right);
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

  Join join_;
  std::vector<std::string> tokens_;
  std::vector<std::pair<Id, Id>> joined_;
  std::unordered_map<std::string, Id> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Place> pairs_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace examples
