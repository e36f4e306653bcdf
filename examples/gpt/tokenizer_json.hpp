// Reads and writes tokenizer.json of a byte-level BPE, in the format of Hugging Face's libraries.
#pragma once

#include "byte_pairs.hpp"

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace examples {

namespace published {

/// tokenizer.json writes each byte as a letter: the byte's own if it is visible, else one from U+0100 on.
class ByteLetters {
 public:
  ByteLetters() {
    utf8proc_int32_t unseen = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool seen = (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      std::array<utf8proc_uint8_t, 4> bytes{};
      const auto size = utf8proc_encode_char(seen ? byte : unseen++, bytes.data());
      auto& letter = letters_[static_cast<std::size_t>(byte)];
      letter.assign(bytes.begin(), bytes.begin() + size);
      bytes_[letter] = static_cast<char>(byte);
    }
  }
  [[nodiscard]] std::string letters(std::string_view bytes) const {
    std::string result;
    for (const char byte : bytes) result += letters_[static_cast<unsigned char>(byte)];
    return result;
  }
  /// Converts letters to bytes; returns text with other letters unchanged.
  [[nodiscard]] std::string bytes(const std::string& letters) const {
    std::string result;
    for (std::size_t at = 0; at < letters.size();) {
      const auto size = decode_utf8(letters, at).size_bytes;
      const auto found = bytes_.find(letters.substr(at, size));
      if (found == bytes_.end()) return letters;
      result += found->second;
      at += size;
    }
    return result;
  }

 private:
  std::array<std::string, 256> letters_;
  std::unordered_map<std::string, char> bytes_;
};

[[nodiscard]] inline SplitRule split_of(const PublishedJson& file) {
  const auto pre = file.part("pre_tokenizer");
  auto parts = nlohmann::json::array({pre});
  if (file.get<std::string>(pre, "type", "none") == "Sequence")
    parts = pre.value("pretokenizers", nlohmann::json::array());
  const auto type = [&](std::size_t at) {
    return at < parts.size() ? file.get<std::string>(parts[at], "type", "none") : "none";
  };
  const bool split = type(0) == "Split";
  const auto& levels = parts[split ? 1 : 0];
  dhp::check(parts.size() == (split ? 2 : 1) && type(split ? 1 : 0) == "ByteLevel", file.path(),
             ": its pre-tokenizer is ", type(0), "; dhp has ByteLevel, alone or after one Split");
  dhp::check(!file.get(levels, "add_prefix_space", true), file.path(),
             ": its pre-tokenizer puts a space before each text, which dhp does not");
  dhp::check(file.get(levels, "use_regex", true) != split, file.path(),
             ": its pre-tokenizer splits twice, or not at all; dhp splits once");
  if (!split) return SplitRule::gpt2;
  const auto pattern = parts[0].value("pattern", nlohmann::json::object());
  const auto text = file.get<std::string>(pattern, "Regex", "");
  file.need(parts[0], "behavior", "Isolated", "split");
  for (const auto& [known, rule] : {std::pair{llama3_pattern, SplitRule::llama3},
                                    {qwen2_pattern, SplitRule::qwen2},
                                    {gpt2_pattern, SplitRule::gpt2}})
    if (text == known) return rule;
  dhp::fail("", file.path(), ": its pre-tokenizer splits by ", text,
            "; dhp has the patterns of GPT-2, Llama 3 and Qwen 2");
}

/// Returns the token that a template puts before each text; empty: none.
[[nodiscard]] inline std::string first_of(const PublishedJson& file) {
  const auto process = file.part("post_processor");
  auto parts = nlohmann::json::array();
  if (file.get<std::string>(process, "type", "none") == "Sequence")
    parts = process.at("processors");
  else if (!process.is_null()) parts.push_back(process);
  std::string first;
  for (const auto& part : parts) {
    const auto type = part.at("type").get<std::string>();
    if (type == "ByteLevel") continue;  // ByteLevel changes no token
    dhp::check(type == "TemplateProcessing", file.path(), ": its post-processor is ", type,
               "; dhp has TemplateProcessing and ByteLevel");
    const auto& single = part.at("single");
    const bool begins = single.size() == 2 && single.at(0).contains("SpecialToken");
    dhp::check(single.is_array() && single.size() == (begins ? 2 : 1) &&
                   single.at(begins ? 1 : 0).contains("Sequence") && first.empty(),
               file.path(), ": its post-processor makes ", single.dump(),
               " of a text; dhp puts one token before it, or none");
    if (begins) first = single.at(0).at("SpecialToken").at("id").get<std::string>();
  }
  return first;
}

[[nodiscard]] inline BytePairs byte_pairs_of(const PublishedJson& file) {
  const auto& path = file.path();
  const auto model = file.part("model");
  file.need(model, "type", "BPE", "tokenizer");
  const auto normalizer = file.part("normalizer");
  dhp::check(normalizer.is_null(), path, ": it has the normalizer ",
             file.get<std::string>(normalizer, "type", "without a type"),
             "; dhp takes texts as they are");
  dhp::check(
      !file.get(model, "byte_fallback", false), path,
      ": it falls back to bytes (byte_fallback), as SentencePiece does; dhp has byte-level BPE");
  const auto dropout = file.get(model, "dropout", 0.0);
  dhp::check(dropout == 0, path, ": its model leaves out merges at random (\"dropout\": ", dropout,
             "), which dhp does not; null tokenizes without");
  for (const auto* const part : {"continuing_subword_prefix", "end_of_word_suffix", "unk_token"})
    file.need(model, part, "", part);
  BytePairRules rules;
  rules.split = split_of(file);
  rules.whole_words = file.get(model, "ignore_merges", false);
  rules.first = first_of(file);
  const ByteLetters letters;
  rules.special = added_tokens(file, false);
  for (const auto& token : tokens_by_id(file, model)) {
    const bool is_special = rules.special.contains(token);
    dhp::check(!is_special || letters.bytes(token) == token || !model["vocab"].contains(token),
               path, ": its added token ", token, " is also how its vocabulary writes other bytes");
    if (is_special) rules.special_ids.push_back(static_cast<std::int32_t>(rules.tokens.size()));
    rules.tokens.push_back(is_special ? token : letters.bytes(token));
  }
  for (const auto& merge : model.at("merges")) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2) {
      left = merge[0], right = merge[1];
    } else if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const auto space = text.find(' ');
      left = text.substr(0, space), right = text.substr(space == text.npos ? 0 : space + 1);
    }
    dhp::check(!left.empty() && !right.empty(), path, " is damaged: a merge is ", merge.dump());
    rules.merges.emplace_back(letters.bytes(left), letters.bytes(right));
  }
  return BytePairs(std::move(rules), path);
}

}  // namespace published

/// Throws if the tokenizer is no byte-level BPE.
[[nodiscard]] inline BytePairs load_byte_pairs(const PublishedJson& file) {
  try {
    return published::byte_pairs_of(file);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // begins with "[json.exception.type_error.302] "
    dhp::fail("", file.path(), " is damaged: ", what.substr(what.find("] ") + 2));
  }
}

/// Returns tokenizer.json for a tokenizer that was trained here.
[[nodiscard]] inline std::string tokenizer_json(const BytePairs& pairs) {
  using Json = nlohmann::ordered_json;
  const auto& rules = pairs.rules();
  const published::ByteLetters letters;
  const auto level = [](const char* kind) {
    return Json{
        {"type", kind}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  };
  Json added = Json::array(), vocabulary = Json::object(), merges = Json::array();
  for (const auto& token : rules.special.tokens())
    added.push_back({{"id", pairs.find(token)},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  for (std::size_t id = 0; id < rules.tokens.size(); ++id) {
    const auto& token = rules.tokens[id];
    vocabulary[rules.special.contains(token) ? token : letters.letters(token)] = id;
  }
  for (const auto& [left, right] : rules.merges)
    merges.push_back(letters.letters(left) + " " + letters.letters(right));
  const auto first = Json{{"SpecialToken", {{"id", rules.first}, {"type_id", 0}}}};
  const auto text = [](const char* id, int type) {
    return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  const Json whole{{"version", "1.0"},
                   {"truncation", nullptr},
                   {"padding", nullptr},
                   {"added_tokens", added},
                   {"normalizer", nullptr},
                   {"pre_tokenizer", level("ByteLevel")},
                   {"post_processor",
                    {{"type", "TemplateProcessing"},
                     {"single", Json::array({first, text("A", 0)})},
                     {"pair", Json::array({first, text("A", 0), first, text("B", 1)})},
                     {"special_tokens",
                      {{rules.first,
                        {{"id", rules.first},
                         {"ids", {pairs.find(rules.first)}},
                         {"tokens", {rules.first}}}}}}}},
                   {"decoder", level("ByteLevel")},
                   {"model",
                    {{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", false},
                     {"vocab", vocabulary},
                     {"merges", merges}}}};
  return whole.dump() + "\n";
}

}  // namespace examples
