// The tokenizer of a published BERT: tokenizer.json, or vocab.txt with tokenizer_config.json, in Hugging Face's
// formats. A tokenizer that is not WordPiece with BERT's rules is refused; the error names its kind.
#pragma once

#include "../data/special_tokens.hpp"
#include "bert_rows.hpp"
#include "wordpiece.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

/// Turns text into ids; recognizes special tokens in the text.
class PublishedTokenizer {
 public:
  explicit PublishedTokenizer(WordPiece wordpiece, SpecialTokens special = SpecialTokens())
      : wordpiece_(std::move(wordpiece)), special_(std::move(special)) {}

  [[nodiscard]] const Vocabulary& vocabulary() const { return wordpiece_.vocabulary(); }
  [[nodiscard]] const WordPiece& wordpiece() const { return wordpiece_; }

  /// Returns the tokens of one or two texts, joined(). Adds 1 to were_cut if they are cut to fit.
  [[nodiscard]] SentenceTokens encode(std::span<const std::string> texts, std::int64_t longest,
                                      std::int64_t& were_cut) const {
    std::vector<std::int32_t> first, second;
    append(texts.front(), first);
    const bool pair = texts.size() == 2;
    if (pair) append(texts.back(), second);
    were_cut += std::ssize(first) + std::ssize(second) > longest - (pair ? 3 : 2) ? 1 : 0;
    using Span = std::span<const std::int32_t>;
    return joined(first, pair ? std::optional<Span>(second) : std::nullopt, longest, vocabulary());
  }

 private:
  void append(std::string_view text, std::vector<std::int32_t>& ids) const {
    special_.part(
        text,
        [&](std::string_view part) {
          const auto words = wordpiece_.encode(part);
          ids.insert(ids.end(), words.begin(), words.end());
        },
        [&](std::string_view token) { ids.push_back(vocabulary().find(token)); });
  }

  WordPiece wordpiece_;
  SpecialTokens special_;
};

namespace published {

/// Applies the settings of tokenizer_config.json, which have priority over tokenizer.json in Hugging Face's
/// BertTokenizer. Returns the tokens that it adds, or null.
inline nlohmann::json configure(const std::string& folder, bool needs_class,
                                BasicTokenizer& basic) {
  const auto config = folder + "/tokenizer_config.json";
  if (!std::filesystem::exists(config)) return {};
  const PublishedJson file(config);
  auto kind = file.get<std::string>("tokenizer_class", "BertTokenizer");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  dhp::check(kind == "BertTokenizer" || !needs_class, config, ": its tokenizer is ", kind,
             "; dhp has BertTokenizer only");
  if (kind != "BertTokenizer") return {};
  basic.lower_case = file.get("do_lower_case", basic.lower_case);
  if (file.json().contains("strip_accents"))
    basic.strip_accents = file.get("strip_accents", basic.lower_case);
  basic.part_ideographs = file.get("tokenize_chinese_chars", basic.part_ideographs);
  return file.part("added_tokens_decoder");
}

/// Throws unless the post-processor makes [CLS] A [SEP] of a text and [CLS] A [SEP] B [SEP] of two, as joined() does.
inline void check_joins(const PublishedJson& file) {
  const auto process = file.part("post_processor");
  const auto type = file.get<std::string>(process, "type", "none");
  const auto part = [](const char* kind, const char* id, int segment) {
    return nlohmann::json{{kind, {{"id", id}, {"type_id", segment}}}};
  };
  const auto single =
      nlohmann::json::array({part("SpecialToken", "[CLS]", 0), part("Sequence", "A", 0),
                             part("SpecialToken", "[SEP]", 0)});
  auto pair = single;
  pair.push_back(part("Sequence", "B", 1));
  pair.push_back(part("SpecialToken", "[SEP]", 1));
  const auto token = [&](const char* key) {
    return file.get(process, key, std::pair<std::string, std::int64_t>()).first;
  };
  const bool fits =
      type == "TemplateProcessing"
          ? process.value("single", nlohmann::json()) == single &&
                process.value("pair", nlohmann::json()) == pair
          : type == "BertProcessing" && token("cls") == "[CLS]" && token("sep") == "[SEP]";
  dhp::check(fits, file.path(), ": its post-processor (", type,
             ") does not put [CLS] and [SEP] around one text and two, as BERT's does");
}

[[nodiscard]] inline PublishedTokenizer from_tokenizer_json(const std::string& folder) {
  const auto path = folder + "/tokenizer.json";
  const PublishedJson file(path);
  const auto model = file.part("model");
  const auto normalizer = file.part("normalizer");
  file.need(model, "type", "WordPiece", "tokenizer");
  dhp::check(normalizer.is_object(), path, ": it has no normalizer; dhp has BertNormalizer only");
  file.need(normalizer, "type", "BertNormalizer", "normalizer");
  file.need(file.part("pre_tokenizer"), "type", "BertPreTokenizer", "pre-tokenizer");
  file.need(model, "unk_token", "[UNK]", "unknown word");
  file.need(model, "continuing_subword_prefix", "##", "mark of a continued word");
  check_joins(file);
  dhp::check(file.get(normalizer, "clean_text", true), path,
             ": its normalizer keeps control characters (clean_text false), and dhp's does not");
  BasicTokenizer basic{.lower_case = file.get(normalizer, "lowercase", true),
                       .part_ideographs = file.get(normalizer, "handle_chinese_chars", true)};
  if (const auto& strips = normalizer.value("strip_accents", nlohmann::json()); !strips.is_null())
    basic.strip_accents = file.get(normalizer, "strip_accents", true);
  (void)configure(folder, false, basic);
  const auto longest = file.get(model, "max_input_chars_per_word", WordPiece::longest_word);
  return PublishedTokenizer(WordPiece(Vocabulary(tokens_by_id(file, model), path), basic, longest),
                            added_tokens(file, true));
}

[[nodiscard]] inline PublishedTokenizer from_vocabulary(const std::string& folder) {
  BasicTokenizer basic;
  const auto words = load_vocabulary(folder + "/vocab.txt");
  auto added = configure(folder, true, basic);
  if (const auto more = folder + "/added_tokens.json"; std::filesystem::exists(more)) {
    const PublishedJson file(more);
    for (const auto& [token, id] : file.json().items()) added[token] = {{"content", token}};
  }
  const PublishedJson config(folder + "/tokenizer_config.json", "{}");  // named in errors
  for (const auto& token : added) {
    const auto content = config.get<std::string>(token, "content", "");
    dhp::check(words.find(content) >= 0, folder, " adds the token ", content,
               " to its vocab.txt, and needs a tokenizer.json, which ",
               how_to_make_tokenizer(folder));
  }
  std::vector<std::string> special(Vocabulary::special_tokens.begin(),
                                   Vocabulary::special_tokens.end());
  return PublishedTokenizer(WordPiece(words, basic), SpecialTokens(std::move(special)));
}

}  // namespace published

/// Loads the tokenizer from the folder of a published model or of a checkpoint.
[[nodiscard]] inline PublishedTokenizer load_published_tokenizer(const std::string& folder) {
  const auto whole = folder + "/tokenizer.json";
  if (std::filesystem::exists(whole)) return published::from_tokenizer_json(folder);
  dhp::check(std::filesystem::exists(folder + "/vocab.txt"), folder,
             " has no tokenizer.json or vocab.txt with the model's vocabulary");
  return published::from_vocabulary(folder);
}

}  // namespace examples
