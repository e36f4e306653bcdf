// The model for a text: the one of --load with its vocabulary, or one of --preset.
#pragma once

#include "../options/options.hpp"
#include "published.hpp"
#include "vocabulary.hpp"
#ifdef DHP_HAS_UTF8PROC
#include "published_tokenizer.hpp"
#endif

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace examples {

/// Returns the folder that describes the model of --load; nullopt if --preset describes the model.
[[nodiscard]] inline std::optional<std::string> described_model(const BertOptions& options) {
  if (options.run.load.empty()) return std::nullopt;
  const auto folder = model_folder(options.run.load);
  if (!std::filesystem::exists(folder + "/config.json")) return std::nullopt;
  return folder;
}

/// Returns the model's description. words: tokens of its tokenizer; a model of --load may know more. Throws if --preset
/// contradicts the sizes of --load's model.
[[nodiscard]] inline PublishedBert text_model(const BertOptions& options, std::int64_t words) {
  PublishedBert bert{.head = BertHead::masked_words};
  if (const auto folder = described_model(options)) {
    bert = load_published_bert(*folder);
    bert.config.vocabulary = std::max(bert.config.vocabulary, words);
    if (!options.preset.empty()) {
      const auto asked = bert_preset(options.preset);
      dhp::check(asked.layers == bert.config.layers && asked.hidden == bert.config.hidden,
                 "--preset ", options.preset, " has ", asked.layers, " layers of ", asked.hidden,
                 ", and the model in ", *folder, " has ", bert.config.layers, " of ",
                 bert.config.hidden, "; leave --preset out");
    }
    dhp::check(
        bert.config.segments > 1 || (options.task == "classify" && options.text_columns.size() < 2),
        *folder,
        ": the model has one kind of segment (\"type_vocab_size\": 1), so it can classify single "
        "sentences, but no pairs");
  } else {
    bert.config = bert_preset(options.preset.empty() ? "tiny" : options.preset);
    bert.config.vocabulary = words;
  }
  auto& config = bert.config;
  config.next_sentence = true;
  config.sequence_length = options.sequence_length;
  config.dropout = options.dropout;
  config.recompute = options.run.recompute;
  config.exchange_heads = options.run.exchange_heads;
  config.share_rows = options.sequence_parallel;
  return bert;
}

#ifdef DHP_HAS_UTF8PROC
/// Returns the tokenizer of --load's model, else one with the words of --vocabulary. Returns nullopt if there is
/// neither: the vocabulary is then made from the text.
[[nodiscard]] inline std::optional<PublishedTokenizer> given_words(const BertOptions& options) {
  const auto folder = options.run.load.empty() ? std::string() : model_folder(options.run.load);
  const bool of_model = !folder.empty() && (std::filesystem::exists(folder + "/tokenizer.json") ||
                                            std::filesystem::exists(folder + "/vocab.txt"));
  if (!of_model && options.vocabulary.empty()) return std::nullopt;
  if (!of_model) return PublishedTokenizer(WordPiece(load_vocabulary(options.vocabulary)));
  auto tokenizer = load_published_tokenizer(folder);
  dhp::check(options.vocabulary.empty() ||
                 load_vocabulary(options.vocabulary).tokens() == tokenizer.vocabulary().tokens(),
             "--vocabulary ", options.vocabulary, " has other words than ", folder,
             ", which the model of --load was trained with; leave --vocabulary out");
  return tokenizer;
}
#endif

/// Returns the files to save beside the weights, by name. The tokenizer's files are copied from the model of --load.
[[nodiscard]] inline std::map<std::string, std::string> model_files(const BertOptions& options,
                                                                    const PublishedBert& bert,
                                                                    const Vocabulary& words) {
  std::map<std::string, std::string> files{{"config.json", published_config(bert)},
                                           {"vocab.txt", vocabulary_text(words)}};
  if (options.run.load.empty()) return files;
  const auto folder = model_folder(options.run.load);
  for (const auto* const name : {"tokenizer.json", "tokenizer_config.json"})
    if (std::filesystem::exists(folder + "/" + name))
      files[name] = dhp::text_of(folder + "/" + name);
  return files;
}

}  // namespace examples
