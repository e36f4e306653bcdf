#include "../bert/masked_lm.hpp"
#include "../bert/synthetic_text.hpp"
#include "../bert/text_model.hpp"
#include "data.hpp"
#include "file_formats.hpp"
#ifdef DHP_HAS_UTF8PROC
#include "../bert/read_text.hpp"
#include "../bert/wordpiece_train.hpp"
#include "text_cache.hpp"
#endif

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace examples {
namespace {

struct Tokenized {
  Vocabulary vocabulary;
  std::shared_ptr<const TokenText> text;
  Pairing pairing;
  std::string description;
};

Tokenized synthetic(const BertOptions& options) {
  dhp::check(options.vocabulary.empty(), "--vocabulary ", options.vocabulary,
             " does not fit --data synthetic, which has a vocabulary of its own");
  SyntheticTextOptions result{.documents = 2048};
  result.vocabulary_size = std::min(options.vocabulary_size, result.vocabulary_size);
  if (options.run.resident()) {  // for timing: full samples over the whole vocabulary
    result.documents = 256;
    result.shortest = result.longest = options.sequence_length;
    result.vocabulary_size = options.vocabulary_size;
  }
  return {synthetic_vocabulary(result.vocabulary_size),
          std::make_shared<TokenText>(synthetic_text(result)), Pairing::next, "synthetic text"};
}

#ifdef DHP_HAS_UTF8PROC
TextOptions text_options(const BertOptions& bert) {
  const auto& sentences = bert.sentences;
  TextOptions options;
  if (!bert.text_columns.empty()) options.column = bert.text_columns.front();
  if (sentences == "lines") options.sentences = SentenceRule::lines;
  if (sentences == "punctuation") options.sentences = SentenceRule::punctuation;
  options.unpack = unpacker();
  return options;
}

/// Throws if most tokens are [UNK]: the vocabulary is of another language or case.
void check_fits(const Vocabulary& vocabulary, const TokenText& tokens, const std::string& path) {
  const auto& items = tokens.items();
  const auto unknown = std::count(items.begin(), items.end(), vocabulary.unknown());
  dhp::check(2 * static_cast<std::size_t>(unknown) <= items.size(), "the vocabulary does not fit ",
             path, ": ", unknown, " of ", items.size(),
             " tokens are unknown words ([UNK]); is it of another language?");
}

TokenizedText encoded(const BertOptions& options, const std::optional<WordPiece>& given) {
  const auto& path = options.run.data;
  const auto text = is_wordnet(path) ? read_wordnet(path) : read_text(path, text_options(options));
  const auto words =
      given ? *given
            : WordPiece(train_wordpiece(text, {.size = options.vocabulary_size, .name = path}));
  return {vocabulary_text(words.vocabulary()), std::make_shared<TokenText>(words.encode(text))};
}

TokenizedText tokens_of(const BertOptions& options, const std::optional<WordPiece>& given) {
  const auto& path = options.run.data;
  auto files = text_files(path);
  if (is_wordnet(path)) {
    files.clear();
    for (const auto file : wordnet_files) files.push_back(path + "/" + std::string(file));
  }
  nlohmann::json rules{{"data", std::filesystem::absolute(path).string()},
                       {"sentences", options.sentences},
                       {"columns", options.text_columns},
                       {"tokenizer", 3},  // raise it if this code's tokens change
                       {"unicode", utf8proc_unicode_version()}};
  if (given)
    rules["words"] = {dhp::detail::fnv1a(vocabulary_text(given->vocabulary())), given->rules()};
  else rules["vocabulary_size"] = options.vocabulary_size;
  return cached_text(options.text_cache, files, rules, options.run.prints(),
                     [&] { return encoded(options, given); });
}

Tokenized tokenize(const BertOptions& options) {
  const auto& path = options.run.data;
  dhp::check(std::filesystem::exists(path), "--data ", path,
             ": there is no such file or directory");
  const bool wordnet = is_wordnet(path);
  dhp::check(!wordnet || options.text_columns.empty(), "--text-column: ", path,
             " is WordNet, which has no columns");
  if (!wordnet) options.run.check_outside(path, "", options.text_cache);
  check_is_prose(path, "BERT");
  std::optional<WordPiece> given;
  if (const auto words = given_words(options)) given = words->wordpiece();
  auto [words, tokens] = tokens_of(options, given);
  auto vocabulary = parse_vocabulary(words, path);
  check_fits(vocabulary, *tokens, path);
  auto description = dhp::concat(path, wordnet ? " (WordNet's glosses, " : " (",
                                 dhp::detail::pluralize(tokens->sentences(), "sentence"), ", ",
                                 dhp::detail::pluralize(tokens->items().size(), "token"), ")");
  return {std::move(vocabulary), std::move(tokens), wordnet ? Pairing::first : Pairing::next,
          std::move(description)};
}
#else
Tokenized tokenize(const BertOptions& options) {
  dhp::fail("--data ", options.run.data, ": ", without_utf8proc,
            "; --data synthetic does not need it");
}
#endif

TokenLayout layout_of(const BertOptions& options, bool same_shapes) {
  if (options.layout == "packed") return TokenLayout::packed;
  // With whole words, `fixed` would make several times as many masked rows as are used.
  const bool fixed = same_shapes && !options.whole_word_masking;
  return fixed ? TokenLayout::fixed : TokenLayout::padded;
}

}  // namespace

TextData load_text(const BertOptions& options, bool same_shapes) {
  const auto& run = options.run;
  auto tokenized = run.synthetic() ? synthetic(options) : tokenize(options);
  auto [train, held_out] =
      split_sentence_pairs(tokenized.text, tokenized.pairing, run.held_out, run.store.seed);
  const MaskedLmOptions masking{.sequence_length = options.sequence_length,
                                .whole_words = options.whole_word_masking,
                                .seed = run.store.seed};
  const auto layout = layout_of(options, same_shapes);
  const auto evaluated = run.evaluate_samples;
  TextData result;
  auto& bert = result.bert = text_model(options, tokenized.vocabulary.size());
  check_tied(bert);
  bert.head = BertHead::masked_words;
  bert.labels.clear();
  const auto batcher = [&](const SentencePairs& pairs, std::int64_t samples) {
    return AnyBatcher(MaskedLmBatcher(pairs, tokenized.vocabulary, masking, layout)).first(samples);
  };
  result.train = batcher(train, run.samples);
  result.held_out = batcher(held_out, evaluated);
  result.files = model_files(options, bert, tokenized.vocabulary);
  result.unigram_cross_entropy =
      unigram_cross_entropy(unigram_of(train, tokenized.vocabulary, masking), held_out,
                            tokenized.vocabulary, masking, evaluated);
  result.same_shapes = layout == TokenLayout::fixed;
  result.description =
      dhp::concat("text ", tokenized.description, ", vocabulary ", bert.config.vocabulary);
  return result;
}

}  // namespace examples
