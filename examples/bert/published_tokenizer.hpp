// The tokenizer of a published BERT: tokenizer.json, or vocab.txt with tokenizer_config.json, as Hugging Face's
// libraries write them. A tokenizer that is not WordPiece with BERT's rules is refused; the error names its kind.
#pragma once

#include "published_json.hpp"
#include "wordpiece.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

/// Text to ids, special tokens in the text included.
class PublishedTokenizer {
 public:
  explicit PublishedTokenizer(WordPiece wordpiece, std::vector<std::string> special = {})
      : wordpiece_(std::move(wordpiece)), special_(std::move(special)) {}

  [[nodiscard]] const Vocabulary& vocabulary() const { return wordpiece_.vocabulary(); }
  [[nodiscard]] const WordPiece& wordpiece() const { return wordpiece_; }

  /// [CLS] text [SEP], of at most `longest` tokens: what is more is cut off behind.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, std::size_t longest,
                                                 bool* was_cut = nullptr) const {
    std::vector<std::int32_t> ids{vocabulary().classify()};
    append(text, ids);
    const bool too_long = ids.size() + 1 > longest;
    if (was_cut != nullptr) *was_cut = too_long;
    if (too_long) ids.resize(longest - 1);
    ids.push_back(vocabulary().separator());
    return ids;
  }
  /// The tokens of a text alone.
  void append(std::string_view text, std::vector<std::int32_t>& ids) const {
    while (!text.empty()) {
      auto [at, token] = next_special(text);
      const auto words = wordpiece_.encode(text.substr(0, at));
      ids.insert(ids.end(), words.begin(), words.end());
      if (token.empty()) break;
      ids.push_back(vocabulary().find(token));
      text.remove_prefix(at + token.size());
    }
  }

 private:
  /// Where the next special token begins, or the end; of two at one place the longer one.
  [[nodiscard]] std::pair<std::size_t, std::string_view> next_special(std::string_view text) const {
    std::pair<std::size_t, std::string_view> found{text.size(), {}};
    for (const auto& token : special_) {
      const auto at = text.find(token);
      if (at == text.npos) continue;
      if (at < found.first || (at == found.first && token.size() > found.second.size()))
        found = {at, token};
    }
    return found;
  }

  WordPiece wordpiece_;
  std::vector<std::string> special_;
};

namespace published {

/// Token i at place i, of {"token": i} and the added tokens.
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
    if (!model["vocab"].contains(added.value("content", "")))
      by_id.emplace_back(added.value("id", std::int64_t{-1}), added.value("content", ""));
  std::sort(by_id.begin(), by_id.end());
  std::vector<std::string> tokens;
  for (auto& [id, token] : by_id) {
    dhp::check(id == static_cast<std::int64_t>(tokens.size()), file.path(), ": token \"", token,
               "\" has the id ", id, ", where ", tokens.size(), " is next");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// Those that are looked for in the text before it is parted into words.
[[nodiscard]] inline std::vector<std::string> added_tokens(const PublishedJson& file) {
  std::vector<std::string> special;
  for (const auto& added : file.part("added_tokens")) {
    const auto token = file.get<std::string>(added, "content", "");
    dhp::check(!token.empty(), file.path(), " is damaged: an added token has no content");
    for (const auto* const rule : {"single_word", "lstrip", "rstrip", "normalized"})
      dhp::check(!file.get(added, rule, false), file.path(), ": its added token ", token,
                 " has the rule ", rule, ", which dhp does not know");
    special.push_back(token);
  }
  return special;
}

[[nodiscard]] inline PublishedTokenizer from_tokenizer_json(const std::string& path) {
  const PublishedJson file(path);
  const auto model = file.part("model");
  const auto normalizer = file.part("normalizer");
  file.need(model, "type", "WordPiece", "tokenizer");
  dhp::check(normalizer.is_object(), path, ": it has no normalizer; dhp has BertNormalizer only");
  file.need(normalizer, "type", "BertNormalizer", "normalizer");
  file.need(file.part("pre_tokenizer"), "type", "BertPreTokenizer", "pre-tokenizer");
  file.need(model, "unk_token", "[UNK]", "unknown word");
  file.need(model, "continuing_subword_prefix", "##", "mark of a continued word");
  dhp::check(file.get(normalizer, "clean_text", true), path,
             ": its normalizer keeps control characters (clean_text false), and dhp's does not");
  const bool lower = file.get(normalizer, "lowercase", true);
  BasicTokenizer basic{.lower_case = lower,
                       .strip_accents = file.get(normalizer, "strip_accents", lower),
                       .part_ideographs = file.get(normalizer, "handle_chinese_chars", true)};
  const auto longest = file.get(model, "max_input_chars_per_word", WordPiece::longest_word);
  return PublishedTokenizer(WordPiece(Vocabulary(tokens_by_id(file, model), path), basic, longest),
                            added_tokens(file));
}

[[nodiscard]] inline PublishedTokenizer from_vocabulary(const std::string& folder) {
  BasicTokenizer basic;
  const auto config = folder + "/tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    const PublishedJson file(config);
    auto kind = file.get<std::string>("tokenizer_class", "BertTokenizer");
    if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
    dhp::check(kind == "BertTokenizer", config, ": its tokenizer is ", kind,
               "; dhp has BertTokenizer only");
    basic.lower_case = file.get("do_lower_case", true);
    basic.strip_accents = file.get("strip_accents", basic.lower_case);
    basic.part_ideographs = file.get("tokenize_chinese_chars", true);
  }
  std::vector<std::string> special(Vocabulary::special_tokens.begin(),
                                   Vocabulary::special_tokens.end());
  return PublishedTokenizer(WordPiece(load_vocabulary(folder + "/vocab.txt"), basic),
                            std::move(special));
}

}  // namespace published

/// Loads the tokenizer from the folder of a published model or of a checkpoint.
[[nodiscard]] inline PublishedTokenizer load_published_tokenizer(const std::string& folder) {
  const auto whole = folder + "/tokenizer.json";
  if (std::filesystem::exists(whole)) return published::from_tokenizer_json(whole);
  dhp::check(std::filesystem::exists(folder + "/vocab.txt"), folder,
             " has no tokenizer.json and no vocab.txt: where are the model's words?");
  return published::from_vocabulary(folder);
}

}  // namespace examples
