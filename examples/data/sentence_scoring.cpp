#include "file_formats.hpp"
#include "scoring.hpp"
#ifdef DHP_HAS_UTF8PROC
#include "../bert/bert_rows.hpp"
#include "../bert/published.hpp"
#include "../bert/published_tokenizer.hpp"
#include "../bert/sentence_file.hpp"
#endif

#include <algorithm>
#include <filesystem>
#include <utility>

namespace examples {

#ifdef DHP_HAS_UTF8PROC
namespace {

[[nodiscard]] std::vector<std::string> columns_of(const PublishedBert& bert, BertHead head,
                                                  const Vocabulary& words) {
  if (head == BertHead::classes) return bert.labels;
  const bool of_words = head == BertHead::masked_words;
  auto names = of_words ? words.tokens() : std::vector<std::string>();
  const auto count = of_words ? bert.config.vocabulary : bert.config.hidden;
  // A model may know more tokens than its tokenizer.
  for (auto at = std::ssize(names); at < count; ++at)
    names.push_back(dhp::concat(of_words ? "token " : "e", at));
  return names;
}

/// Reads the text, or the two texts, of each row.
[[nodiscard]] std::vector<std::vector<std::string>> texts_of(const ScoreOptions& options) {
  const auto bytes = read_text_file(options.input, unpacker());
  SentenceFile file(bytes, options.input);
  const auto& columns = options.text_columns;
  std::vector<std::vector<std::string>> result;
  if (columns.size() == 2)
    for (auto& row : file.rows(columns)) result.push_back(std::move(row.fields));
  else
    for (auto& sentence : file.sentences(columns.empty() ? "" : columns[0]))
      result.push_back({std::move(sentence)});
  return result;
}

}  // namespace

BertScoring prepare_sentences(const ScoreOptions& options) {
  check_row_file(options.output, options.run.prints());
  const auto folder = scored_model_folder(options.run.load);
  const auto& adapter = options.run.tuning.adapter;
  const bool of_adapter = !adapter.empty() && std::filesystem::exists(adapter + "/config.json");
  BertScoring result;
  auto& bert = result.bert = load_published_bert(of_adapter ? adapter : folder);
  const auto tokenizer = load_published_tokenizer(folder);
  const auto pooling = load_sentence_pooling(folder);
  dhp::check(!pooling.lower_case || tokenizer.wordpiece().basic().lower_case, folder,
             "/sentence_bert_config.json: do_lower_case lowers letters before a tokenizer that "
             "does not, and dhp does not either; set it to false, and lower the texts");
  const auto& words = tokenizer.vocabulary();
  dhp::check(words.size() <= bert.config.vocabulary, folder, ": its tokenizer has ", words.size(),
             " words, and its config.json says ", bert.config.vocabulary);
  const auto longest =
      options.sequence_length > 0 ? options.sequence_length : pooling.longest_of(bert.config);
  dhp::check(longest >= 3 && longest <= bert.config.positions, "--sequence-length ", longest,
             ": this model takes from 3 to ", bert.config.positions, " tokens");
  bert.config.sequence_length = longest;
  dhp::check(options.text_columns.size() < 2 || bert.config.segments > 1, folder,
             ": the model has one kind of segment, and takes no pairs of sentences");

  const auto head = result.head = head_to_predict(bert, options.predict);
  dhp::check(head == BertHead::none || (!options.pooling && !options.normalize),
             "--pooling and --normalize do nothing with logits; choose --predict embeddings");
  result.adapters = adapters_of(folder, adapter);
  auto tokens = std::make_shared<SentenceBatcher::Sentences>();
  std::int64_t total = 0, were_cut = 0;
  for (const auto& texts : texts_of(options)) {
    tokens->push_back(tokenizer.encode(texts, longest, were_cut));
    const auto& ids = tokens->back().ids;
    total += std::ssize(ids);
    result.rows_of.push_back(
        head == BertHead::masked_words ? std::count(ids.begin(), ids.end(), words.mask()) : 1);
    result.output.rows += result.rows_of.back();
  }
  dhp::check(!tokens->empty(), options.input, " has no sentence");
  dhp::check(
      result.output.rows > 0, options.input,
      " has no [MASK], for which this model predicts words; --predict embeddings needs none");
  const bool first = options.pooling ? *options.pooling == "first" : pooling.first_token;
  result.normalize = head == BertHead::none && options.normalize.value_or(pooling.normalize);
  result.output.path = options.output;
  result.output.what = head == BertHead::none ? "embedding" : "logits";
  result.output.columns = columns_of(bert, head, words);
  result.output.wide = options.run.store.compute == dhp::DType::f64;
  result.output.best = head != BertHead::none;
  result.description =
      dhp::concat(dhp::detail::pluralize(tokens->size(), "sentence"), ", ",
                  dhp::detail::pluralize(total, "token"), were_cut == 0 ? "" : ", ",
                  were_cut == 0 ? "" : dhp::concat(were_cut, " cut off at ", longest), "; ",
                  head != BertHead::none ? "logits"
                  : first                ? "the vector of the first token"
                                         : "the mean of the tokens' vectors",
                  result.normalize ? ", normalized" : "");
  result.samples = AnyBatcher(SentenceBatcher(
      std::move(tokens), {.longest = longest, .first_token = first, .hidden = words.mask()}));
  return result;
}
#else
BertScoring prepare_sentences(const ScoreOptions&) { dhp::fail(without_utf8proc); }
#endif

}  // namespace examples
