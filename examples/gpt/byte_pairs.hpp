// Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019, "GPT-2"): each byte of a text is a token,
// and pairs of neighbors are merged in the order in which training found them. Any bytes can be encoded; invalid UTF-8
// counts as punctuation.
#pragma once

#include "../data/pair_joiner.hpp"
#include "../data/special_tokens.hpp"
#include "split.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

/// Content of a tokenizer; its strings hold bytes, not tokenizer.json's letters for bytes.
struct BytePairRules {
  std::vector<std::string> tokens;  ///< tokens by id
  std::vector<std::pair<std::string, std::string>> merges;
  SpecialTokens special{};
  std::vector<std::int32_t> special_ids{};  ///< their ids; other tokens may have the same bytes
  SplitRule split = SplitRule::gpt2;
  bool whole_words = false;  ///< does not split a piece that is a token
  std::string first{};       ///< special token before each text; empty: none
};

/// Cheap to copy.
class BytePairs {
 public:
  /// The tokens of pieces that occurred before.
  using Known = std::unordered_map<std::string, std::vector<std::int32_t>>;

  /// name: appears in errors.
  explicit BytePairs(BytePairRules rules, const std::string& name = "tokenizer") {
    auto result = std::make_shared<Tables>();
    result->rules = std::move(rules);
    const auto& tokens = result->rules.tokens;
    dhp::check(!tokens.empty(), name, " has no tokens");
    for (const auto id : result->rules.special_ids)
      result->special.try_emplace(tokens.at(static_cast<std::size_t>(id)), id);
    for (std::int32_t id = 0; id < std::ssize(tokens); ++id)
      if (const auto& token = tokens[static_cast<std::size_t>(id)];
          !result->special.contains(token) || result->special[token] != id)
        result->ids.try_emplace(token, id);
    const auto id_of = [&](const std::string& token) {
      for (const auto* const known : {&result->ids, &result->special})
        if (const auto found = known->find(token); found != known->end()) return found->second;
      dhp::fail("", name, ": a merge's token \"", token, "\" is not in its vocabulary");
    };
    for (std::int32_t rank = 0; const auto& [left, right] : result->rules.merges)
      result->merges.insert_or_assign(pair_of(id_of(left), id_of(right)),
                                      Merge{rank++, id_of(left + right)});
    tables_ = std::move(result);
    if (const auto& first = tables_->rules.first; !first.empty())
      dhp::check(find(first) >= 0, name, ": the token before each text, \"", first,
                 "\" is not in its vocabulary");
  }

  [[nodiscard]] const BytePairRules& rules() const { return tables_->rules; }
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(rules().tokens.size());
  }
  /// Returns the id of a special token, else that of another token of these bytes, or -1.
  [[nodiscard]] std::int32_t find(const std::string& token) const {
    const auto found = tables_->special.find(token);
    return found == tables_->special.end() ? found_piece(token) : found->second;
  }

  /// Appends the tokens of a text; recognizes special tokens in the text.
  void append(std::string_view text, std::vector<std::int32_t>& ids, Known& known) const {
    rules().special.part(
        text,
        [&](std::string_view part) {
          Splitter(part, rules().split).pieces([&](std::string_view piece) {
            const auto [place, fresh] = known.try_emplace(std::string(piece));
            if (fresh) place->second = merged(piece);
            ids.insert(ids.end(), place->second.begin(), place->second.end());
          });
        },
        [&](std::string_view token) { ids.push_back(find(std::string(token))); });
  }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    Known known;
    std::vector<std::int32_t> ids;
    append(text, ids, known);
    return ids;
  }
  /// Returns the bytes of the tokens, which may end within a letter. Ids beyond the tokens, which a model may have,
  /// give no bytes.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const auto id : ids)
      if (id >= 0 && id < size()) text += rules().tokens[static_cast<std::size_t>(id)];
    return text;
  }

 private:
  struct Merge {
    std::int32_t rank, id;
  };
  struct Tables {
    BytePairRules rules;
    std::unordered_map<std::string, std::int32_t> ids, special;
    std::unordered_map<std::uint64_t, Merge> merges;
  };

  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  [[nodiscard]] std::int32_t found_piece(const std::string& bytes) const {
    const auto found = tables_->ids.find(bytes);
    return found == tables_->ids.end() ? -1 : found->second;
  }

  /// Repeatedly merges the pair that training found first, and of several such pairs the leftmost, until none is left.
  [[nodiscard]] std::vector<std::int32_t> merged(std::string_view piece) const {
    std::vector<std::int32_t> ids;  // -1: merged into the token on its left
    if (rules().whole_words)
      if (const auto id = found_piece(std::string(piece)); id >= 0) return {id};
    for (const char byte : piece)  // drops a byte that is no token, like Hugging Face's library
      if (const auto id = found_piece(std::string(1, byte)); id >= 0) ids.push_back(id);
    const auto end = ids.size();
    std::vector<std::size_t> before(end + 1), after(end + 1);  // neighbors
    for (std::size_t at = 0; at < end; ++at) before[at + 1] = at, after[at] = at + 1;
    const auto merge_at = [&](std::size_t at) -> const Merge* {
      if (after[at] == end) return nullptr;
      const auto found = tables_->merges.find(pair_of(ids[at], ids[after[at]]));
      return found == tables_->merges.end() ? nullptr : &found->second;
    };
    using Place = std::pair<std::int32_t, std::size_t>;  // a merge's rank and where its pair begins
    std::priority_queue<Place, std::vector<Place>, std::greater<>> open;
    const auto look = [&](std::size_t at) {
      if (const auto* const merge = merge_at(at)) open.emplace(merge->rank, at);
    };
    for (std::size_t at = 0; at < end; ++at) look(at);
    while (!open.empty()) {
      const auto [rank, at] = open.top();
      open.pop();
      const auto* const merge = merge_at(at);
      if (merge == nullptr || merge->rank != rank) continue;  // its tokens have been merged
      ids[at] = merge->id;
      ids[after[at]] = -1;
      after[at] = after[after[at]];
      before[after[at]] = at;
      look(at);
      if (at > 0) look(before[at]);
    }
    std::erase(ids, -1);
    return ids;
  }

  std::shared_ptr<const Tables> tables_;
};

/// The token before and after documents, in vocabularies that are trained here.
inline constexpr const char* end_of_text = "<|endoftext|>";

/// Trains a vocabulary of at most `size` tokens on the pieces of texts: the special token, all bytes, then merged
/// pieces in the order of merging.
template <class Texts>
[[nodiscard]] BytePairs train_byte_pairs(const Texts& texts, std::int64_t size) {
  dhp::check(size > 257, "a vocabulary of ", size,
             " tokens is too small for the 256 bytes and the end of a text; give 258 or more");
  std::unordered_map<std::string, std::int64_t> counts;
  for (const std::string_view text : texts)
    Splitter(text, SplitRule::gpt2).pieces([&](std::string_view piece) {
      ++counts[std::string(piece)];
    });
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  PairJoiner joiner([](const auto& left, const auto& right) { return left + right; });
  joiner.id_of(end_of_text);
  for (int byte = 0; byte < 256; ++byte) joiner.id_of(std::string(1, static_cast<char>(byte)));
  for (const auto& [piece, count] : sorted) {
    std::vector<PairJoiner::Id> bytes;
    for (const char byte : piece) bytes.push_back(1u + static_cast<unsigned char>(byte));
    joiner.add_word(std::move(bytes), count);
  }
  joiner.run(size);
  BytePairRules rules;
  rules.tokens = joiner.tokens();
  rules.special = SpecialTokens({end_of_text});
  rules.special_ids = {0};
  rules.first = end_of_text;
  for (const auto& [left, right] : joiner.joined())
    rules.merges.emplace_back(rules.tokens[left], rules.tokens[right]);
  return BytePairs(std::move(rules));
}

}  // namespace examples
