// The vocabulary in a tokenizer.json of any kind: tokens by their ids, and special tokens, which are found in a text
// before it is split into words.
#pragma once

#include "published_json.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

class SpecialTokens {
 public:
  explicit SpecialTokens(std::vector<std::string> tokens = {}) : tokens_(std::move(tokens)) {}

  /// Calls text(part) and special(token) for a text's parts in order. Of special tokens at one place the longest
  /// counts.
  template <class TakeText, class TakeSpecial>
  void part(std::string_view whole, TakeText&& text, TakeSpecial&& special) const {
    std::vector<std::size_t> places;  // next place of each token
    for (const auto& token : tokens_) places.push_back(whole.find(token));
    for (std::size_t begin = 0; begin < whole.size();) {
      std::pair<std::size_t, std::string_view> next{whole.size(), {}};
      for (std::size_t number = 0; number < places.size(); ++number) {
        const std::string_view token = tokens_[number];
        auto& at = places[number];
        if (at < begin) at = whole.find(token, begin);
        if (at < next.first || (at == next.first && token.size() > next.second.size()))
          next = {at, token};
      }
      if (next.first > begin) text(whole.substr(begin, next.first - begin));
      if (next.second.empty()) return;
      special(next.second);
      begin = next.first + next.second.size();
    }
  }
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }
  [[nodiscard]] bool contains(std::string_view token) const {
    return std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end();
  }

 private:
  std::vector<std::string> tokens_;
};

/// Returns the part of an error's sentence that says how to make the tokenizer.json of a published folder.
[[nodiscard]] inline std::string how_to_make_tokenizer(const std::string& folder) {
  return "transformers makes: python3 -c 'import sys, transformers as t; "
         "t.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' " +
         folder;
}

namespace published {

/// Returns the tokens by id, from {"token": id} and the added tokens.
[[nodiscard]] inline std::vector<std::string> tokens_by_id(const PublishedJson& file,
                                                           const nlohmann::json& model) {
  std::vector<std::pair<std::int64_t, std::string>> by_id;
  const auto damaged = [&] {
    dhp::fail("", file.path(), " is damaged: its vocabulary is no numbered list");
  };
  if (!model.contains("vocab") || !model["vocab"].is_object()) damaged();
  for (const auto& [token, id] : model["vocab"].items()) {
    if (!id.is_number_integer()) damaged();
    by_id.emplace_back(id.get<std::int64_t>(), token);
  }
  for (const auto& added : file.part("added_tokens"))
    if (const auto token = file.get<std::string>(added, "content", "");
        !model["vocab"].contains(token))
      by_id.emplace_back(file.get(added, "id", std::int64_t{-1}), token);
  std::sort(by_id.begin(), by_id.end());
  std::vector<std::string> tokens;
  for (auto& [id, token] : by_id) {
    dhp::check(id == static_cast<std::int64_t>(tokens.size()), file.path(), ": token \"", token,
               "\" has the id ", id, ", where ", tokens.size(), " is next");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// Returns the added tokens; throws if one has a rule that dhp does not support. normalizes: the file has a normalizer,
/// without which the rule "normalized" changes nothing.
[[nodiscard]] inline SpecialTokens added_tokens(const PublishedJson& file, bool normalizes) {
  std::vector<std::string> special;
  for (const auto& added : file.part("added_tokens")) {
    const auto token = file.get<std::string>(added, "content", "");
    dhp::check(!token.empty(), file.path(), " is damaged: an added token has no content");
    for (const std::string rule : {"single_word", "lstrip", "rstrip", "normalized"})
      dhp::check(!file.get(added, rule.c_str(), false) || (rule == "normalized" && !normalizes),
                 file.path(), ": its added token ", token, " has the rule ", rule,
                 ", which dhp does not know");
    special.push_back(token);
  }
  return SpecialTokens(std::move(special));
}

}  // namespace published

}  // namespace examples
