#include "data.hpp"
#include "file_formats.hpp"

#ifdef DHP_HAS_UTF8PROC
#include "../bert/masked_lm.hpp"
#include "../bert/sentence_batcher.hpp"
#include "../bert/sentence_file.hpp"
#include "../bert/text_model.hpp"
#include "../bert/wordpiece_train.hpp"
#endif

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace examples {

#ifdef DHP_HAS_UTF8PROC
namespace {

struct Labelled {
  std::string path;
  std::vector<std::vector<std::string>> rows;  // one text or two, and the label
};

[[nodiscard]] Labelled read(const BertOptions& options, const std::string& path) {
  dhp::check(std::filesystem::is_regular_file(path), path, ": there is no such file");
  auto columns = options.text_columns;
  columns.push_back(options.label_column);
  const auto text = read_text_file(path, unpacker());
  Labelled made{path, SentenceFile(text, path).rows(columns, 1)};
  dhp::check(!made.rows.empty(), path, " has no samples");
  return made;
}

/// Of one text or two, cut off behind so that they fit; of two the longer one first.
[[nodiscard]] SentenceTokens tokens_of(const std::vector<std::string>& row,
                                       const PublishedTokenizer& words, std::int64_t longest,
                                       std::int64_t& were_cut) {
  const auto& vocabulary = words.vocabulary();
  std::vector<std::int32_t> first, second;
  words.append(row.front(), first);
  const bool pair = row.size() == 3;
  if (pair) words.append(row[1], second);
  auto sizes =
      std::pair(static_cast<std::int64_t>(first.size()), static_cast<std::int64_t>(second.size()));
  const auto room = longest - (pair ? 3 : 2);
  were_cut += sizes.first + sizes.second > room ? 1 : 0;
  if (pair) truncate_pair(room, sizes.first, sizes.second);
  else sizes.first = std::min(sizes.first, room);
  SentenceTokens made;
  made.ids.push_back(vocabulary.classify());
  made.ids.insert(made.ids.end(), first.begin(), first.begin() + sizes.first);
  made.ids.push_back(vocabulary.separator());
  if (!pair) return made;
  made.second_segment = static_cast<std::int64_t>(made.ids.size());
  made.ids.insert(made.ids.end(), second.begin(), second.begin() + sizes.second);
  made.ids.push_back(vocabulary.separator());
  return made;
}

/// Those of the model if it has all of them; else numbers by size, other names by their letters.
[[nodiscard]] std::vector<std::string> classes_of(const Labelled& data, const PublishedBert& bert) {
  std::set<std::string> found;
  for (const auto& row : data.rows) found.insert(row.back());
  const auto& known = bert.labels;
  if (bert.head == BertHead::classes &&
      std::all_of(found.begin(), found.end(), [&](const auto& label) {
        return std::find(known.begin(), known.end(), label) != known.end();
      }))
    return known;
  dhp::check(found.size() >= 2, data.path, ": all its labels are ", *found.begin(),
             ", and there is nothing to tell apart");
  constexpr std::size_t most = 10000;
  dhp::check(found.size() <= most, data.path, " has ", found.size(),
             " different labels; is --label-column the right one?");
  std::vector<std::string> classes(found.begin(), found.end());
  const auto is_number = [](const std::string& label) {
    return !label.empty() && label.size() < 10 &&
           label.find_first_not_of("0123456789") == label.npos;
  };
  if (std::all_of(classes.begin(), classes.end(), is_number))
    std::sort(classes.begin(), classes.end(),
              [](const auto& a, const auto& b) { return std::stol(a) < std::stol(b); });
  return classes;
}

[[nodiscard]] PublishedTokenizer words_for(const BertOptions& options, const Labelled& data) {
  if (auto given = given_words(options)) return *given;
  Text text;
  for (const auto& row : data.rows) {
    for (std::size_t at = 0; at + 1 < row.size(); ++at) text.add_sentence(std::span(row[at]));
    text.end_document();
  }
  return PublishedTokenizer(WordPiece(train_wordpiece(text, {.size = options.vocabulary_size})));
}

}  // namespace

LabelledText load_labelled_text(const BertOptions& options) {
  const auto& run = options.run;
  const auto data = read(options, run.data);
  const auto words = words_for(options, data);
  LabelledText made;
  made.bert = text_model(options);
  auto& bert = made.bert;
  bert.labels = classes_of(data, bert);
  bert.head = BertHead::classes;
  auto& vocabulary = bert.config.vocabulary;
  const bool described = described_model(options).has_value();
  vocabulary = described ? std::max<std::int64_t>(vocabulary, words.vocabulary().size())
                         : words.vocabulary().size();
  std::map<std::string, std::int32_t> number_of;
  for (std::size_t at = 0; at < bert.labels.size(); ++at)
    number_of[bert.labels[at]] = static_cast<std::int32_t>(at);

  std::int64_t were_cut = 0, tokens = 0;
  const auto encode = [&](const Labelled& from) {
    SentenceBatcher::Sentences samples;
    for (std::size_t at = 0; at < from.rows.size(); ++at) {
      const auto& row = from.rows[at];
      const auto label = number_of.find(row.back());
      dhp::check(label != number_of.end(), from.path, ", sample ", at + 1, ": its label ",
                 row.back(), " is none of the ", number_of.size(), " of ", data.path);
      samples.push_back(tokens_of(row, words, options.sequence_length, were_cut));
      samples.back().label = label->second;
      tokens += static_cast<std::int64_t>(samples.back().ids.size());
    }
    return samples;
  };
  auto all = encode(data);
  const auto count = static_cast<std::int64_t>(all.size());
  SentenceBatcher::Sentences train, held_out;
  if (!options.test_data.empty()) {
    train = std::move(all);
    held_out = encode(read(options, options.test_data));
  } else {  // in a random order: files are often sorted
    const dhp::Permutation order(count, run.seed, 0);
    const auto kept = count - static_cast<std::int64_t>(run.held_out * static_cast<double>(count));
    for (std::int64_t at = 0; at < count; ++at)
      (at < kept ? train : held_out).push_back(all[static_cast<std::size_t>(order(at))]);
  }
  if (run.evaluate_samples > 0 && held_out.size() > static_cast<std::size_t>(run.evaluate_samples))
    held_out.resize(static_cast<std::size_t>(run.evaluate_samples));
  dhp::check(!train.empty(), run.data,
             ": no sample is left to train on; choose a smaller --held-out");
  for (const auto& sample : held_out) made.labels.push_back(sample.label);
  made.description = dhp::concat(run.data, " (", train.size(), " samples to train on, ",
                                 held_out.size(), " held out, ", tokens, " tokens, ", were_cut,
                                 " cut off, ", bert.labels.size(), " classes)");
  const auto batcher = [&](SentenceBatcher::Sentences samples) {
    return AnyBatcher(
        SentenceBatcher(std::make_shared<const SentenceBatcher::Sentences>(std::move(samples)),
                        {.longest = options.sequence_length, .labelled = true}));
  };
  made.train = batcher(std::move(train)).first(run.samples);
  made.held_out = batcher(std::move(held_out));
  made.files = model_files(options, bert, words.vocabulary());
  return made;
}
#else
LabelledText load_labelled_text(const BertOptions&) {
  dhp::fail("this program was built without utf8proc, which text needs (Debian: libutf8proc-dev)");
}
#endif

}  // namespace examples
