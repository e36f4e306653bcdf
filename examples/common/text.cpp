#include <dhp/data/masked_lm_batcher.hpp>
#include <dhp/data/synthetic_text.hpp>
#include <dhp/data/text.hpp>
#include <dhp/data/unigram.hpp>
#include <dhp/data/wordnet.hpp>
#include <dhp/data/wordpiece.hpp>
#include <dhp/data/wordpiece_train.hpp>

#include "data.hpp"
#ifdef DHP_HAS_ZLIB
#include <dhp/data/gzip.hpp>
#endif

#include <algorithm>
#include <filesystem>
#include <memory>

namespace examples {
namespace {

dhp::TextOptions text_options(const std::string& sentences) {
  dhp::TextOptions options;
  if (sentences == "lines") options.sentences = dhp::SentenceRule::lines;
  if (sentences == "punctuation") options.sentences = dhp::SentenceRule::punctuation;
#ifdef DHP_HAS_ZLIB
  options.unpack = &dhp::gunzip;
#endif
  return options;
}

struct Tokenised {
  dhp::Vocabulary vocabulary;
  std::shared_ptr<const dhp::TokenText> text;
  dhp::Pairing pairing;
  std::string description;
};

/// A model that is loaded brings its words with it.
dhp::Vocabulary vocabulary_for(const BertOptions& options, const dhp::Text& text) {
  const auto of_model = options.run.load + "/vocab.txt";
  const bool loads = !options.run.load.empty() && std::filesystem::exists(of_model);
  if (loads) {
    auto vocabulary = dhp::load_vocabulary(of_model);
    dhp::check(options.vocabulary.empty() ||
                   dhp::load_vocabulary(options.vocabulary).tokens() == vocabulary.tokens(),
               "--vocabulary ", options.vocabulary, " has other words than ", of_model,
               ", which the model of --load was trained with; leave --vocabulary out");
    return vocabulary;
  }
  if (!options.vocabulary.empty()) return dhp::load_vocabulary(options.vocabulary);
  return dhp::train_wordpiece(text, {.size = options.vocabulary_size});
}

/// A vocabulary of another language or another case turns words into [UNK].
void check_fits(const dhp::Vocabulary& vocabulary, const dhp::TokenText& tokens,
                const std::string& path) {
  const auto& items = tokens.items();
  const auto unknown = std::count(items.begin(), items.end(), vocabulary.unknown());
  dhp::check(2 * static_cast<std::size_t>(unknown) <= items.size(), "the vocabulary does not fit ",
             path, ": ", unknown, " of ", items.size(),
             " tokens are unknown words ([UNK]); is it of another language?");
}

Tokenised tokenise(const BertOptions& options) {
  const auto& path = options.run.data;
  if (options.run.synthetic()) {
    dhp::check(options.vocabulary.empty(), "--vocabulary ", options.vocabulary,
               " does not fit --data synthetic, which has a vocabulary of its own");
    dhp::SyntheticTextOptions made{.documents = 2048};
    made.vocabulary_size = std::min(options.vocabulary_size, made.vocabulary_size);
    if (options.run.resident()) {  // for measuring: full samples over the whole vocabulary
      made.documents = 256;
      made.shortest = made.longest = options.sequence_length;
      made.vocabulary_size = options.vocabulary_size;
    }
    return {dhp::synthetic_vocabulary(made.vocabulary_size),
            std::make_shared<dhp::TokenText>(dhp::synthetic_text(made)), dhp::Pairing::next,
            "synthetic text"};
  }
  dhp::check(std::filesystem::exists(path), "--data ", path,
             ": there is no such file or directory");
  const bool wordnet = dhp::is_wordnet(path);
  const auto text =
      wordnet ? dhp::read_wordnet(path) : dhp::read_text(path, text_options(options.sentences));
  auto vocabulary = vocabulary_for(options, text);
  const dhp::WordPiece wordpiece(vocabulary);
  auto tokens = std::make_shared<dhp::TokenText>(wordpiece.encode(text));
  check_fits(vocabulary, *tokens, path);
  return {std::move(vocabulary), tokens, wordnet ? dhp::Pairing::first : dhp::Pairing::next,
          dhp::concat(path, wordnet ? " (WordNet's glosses, " : " (", text.sentences(),
                      " sentences, ", tokens->items().size(), " tokens)")};
}

dhp::TokenLayout layout_of(const BertOptions& options, bool same_shapes) {
  if (options.layout == "packed") return dhp::TokenLayout::packed;
  // The bound for whole words would be several times as many rows as are masked.
  const bool fixed = same_shapes && !options.whole_word_masking;
  return fixed ? dhp::TokenLayout::fixed : dhp::TokenLayout::padded;
}

}  // namespace

TextData load_text(const BertOptions& options, bool same_shapes) {
  auto tokenised = tokenise(options);
  const auto& run = options.run;
  auto [train, held_out] =
      dhp::split_sentence_pairs(tokenised.text, tokenised.pairing, run.held_out, run.seed);
  const dhp::MaskedLmOptions masking{.sequence_length = options.sequence_length,
                                     .whole_words = options.whole_word_masking,
                                     .seed = run.seed};
  const auto layout = layout_of(options, same_shapes);
  const auto evaluated = run.evaluate_samples;
  const auto unigram = dhp::unigram_of(train, tokenised.vocabulary, masking);
  return {
      .train = AnyBatcher(dhp::MaskedLmBatcher(train, tokenised.vocabulary, masking, layout))
                   .first(run.samples),
      .held_out = AnyBatcher(dhp::MaskedLmBatcher(held_out, tokenised.vocabulary, masking, layout))
                      .first(evaluated),
      .vocabulary = std::make_shared<dhp::Vocabulary>(tokenised.vocabulary),
      .unigram_cross_entropy =
          dhp::unigram_cross_entropy(unigram, held_out, tokenised.vocabulary, masking, evaluated),
      .same_shapes = layout == dhp::TokenLayout::fixed,
      .description = tokenised.description};
}

}  // namespace examples
