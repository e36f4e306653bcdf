#include "data.hpp"
#include "file_formats.hpp"

#ifdef DHP_HAS_UTF8PROC
#include "../bert/bert_rows.hpp"
#include "../bert/sentence_file.hpp"
#include "../bert/text_model.hpp"
#include "../bert/wordpiece_train.hpp"
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

namespace examples {

#ifdef DHP_HAS_UTF8PROC
namespace {

struct Labeled {
  std::string path;
  std::vector<TableRow> rows;  // one or two texts, then the label
};

/// Keeps the first remark of each kind with its place in the file, and counts the others.
struct Remarks {
  std::map<std::string, std::pair<std::string, int>> by_kind;
  void add(const std::string& kind, const std::string& where) {
    by_kind.try_emplace(kind, where, -1).first->second.second += 1;
  }
  void append_to(std::vector<std::string>& warnings) const {
    for (const auto& [kind, first] : by_kind)
      warnings.push_back(
          first.first + kind +
          (first.second > 0 ? dhp::concat("; so have ", first.second, " more") : ""));
  }
};

[[nodiscard]] std::string without_spaces(std::string_view label) {
  using namespace std::string_view_literals;
  constexpr std::array spaces{" "sv, "\t"sv, "\r"sv, "\n"sv, "\u00A0"sv, "\u3000"sv, "\uFEFF"sv};
  for (std::size_t size = 0; size != label.size();) {
    size = label.size();
    for (const auto space : spaces) {
      if (label.starts_with(space)) label.remove_prefix(space.size());
      if (label.ends_with(space)) label.remove_suffix(space.size());
    }
  }
  return std::string(label);
}

/// Strips spaces from the labels and warns of suspicious ones.
void look_at_labels(Labeled& data, std::vector<std::string>& warnings) {
  Remarks remarks;
  for (auto& [line, fields] : data.rows) {
    const auto where = dhp::concat(data.path, ", line ", line, ": ");
    auto& label = fields.back();
    const auto written = label;
    label = without_spaces(label);
    dhp::check(!label.empty(), where, "its label is empty; give it one, or leave the row out");
    if (label.size() < written.size()) remarks.add("spaces around a label are left out", where);
    const auto small = dhp::detail::lower_case(label);
    for (const auto* const none : {"nan", "na", "n/a", "#n/a", "<na>", "null", "none"})
      if (small == none)
        remarks.add("the label " + label + " looks like a missing one, and is taken for a class",
                    where);
    if (std::all_of(fields.begin(), fields.end() - 1, [](auto& text) { return text.empty(); }))
      remarks.add("it has no text", where);
  }
  remarks.append_to(warnings);
}

[[nodiscard]] Labeled read(const BertOptions& options, const std::string& path,
                           std::vector<std::string>& warnings) {
  dhp::check(std::filesystem::is_regular_file(path), path,
             std::filesystem::exists(path)
                 ? ": is not a file; --task classify reads one with a sample per line"
                 : ": there is no such file");
  auto columns = options.text_columns;
  columns.push_back(options.label_column);
  const auto text = read_text_file(path, unpacker());
  SentenceFile file(text, path);
  Labeled result{path, file.rows(columns, 1)};
  dhp::check(!result.rows.empty(), path, " has no samples");
  if (file.quotes_are_letters())
    warnings.push_back(path + ": its quotes do not stand around fields, and are letters");
  look_at_labels(result, warnings);
  return result;
}

/// Warns if the model's head was trained for as many classes with other names.
void look_at_head(const std::string& path, const std::vector<std::string>& classes,
                  const std::vector<std::string>& known, std::vector<std::string>& warnings) {
  const auto same = [](const std::string& now, const std::string& before) {
    return before == now || before == "LABEL_" + now;
  };
  if (classes.size() == known.size() &&
      !std::equal(classes.begin(), classes.end(), known.begin(), same))
    warnings.push_back(dhp::concat(
        path, ": its classes ", classes[0], ", ", classes[1], classes.size() > 2 ? ", ..." : "",
        " use the head that the model has for ", known[0], ", ", known[1],
        known.size() > 2 ? ", ..." : "", ", in this order; --new-head begins the head anew"));
}

/// Returns the model's classes if they cover all labels, else the labels: sorted by value if all are numbers, else in
/// byte order. new_head: a new head replaces the model's.
[[nodiscard]] std::vector<std::string> classes_of(const Labeled& data, const PublishedBert& bert,
                                                  bool new_head,
                                                  std::vector<std::string>& warnings) {
  std::map<std::string, std::size_t> found;  // first line of each label
  for (const auto& row : data.rows) found.try_emplace(row.fields.back(), row.line);
  const auto& known = bert.labels;
  if (bert.head == BertHead::classes &&
      std::all_of(found.begin(), found.end(), [&](const auto& label) {
        return std::find(known.begin(), known.end(), label.first) != known.end();
      }))
    return known;
  dhp::check(found.size() >= 2, data.path, ": all its labels are ", found.begin()->first,
             ", and there is nothing to tell apart");
  constexpr std::size_t most = 10000;
  dhp::check(found.size() <= most, data.path, " has ", found.size(),
             " different labels; is --label-column the right one?");
  std::vector<std::string> classes;
  std::map<long double, std::string> numbers;  // long double holds 64-bit integers exactly
  std::map<std::string, std::string> small;
  for (const auto& [label, line] : found) {
    classes.push_back(label);
    if (const auto number = dhp::detail::number_of<long double>(label);
        number && std::isfinite(*number)) {
      const auto [same, fresh] = numbers.emplace(*number, label);
      dhp::check(fresh, data.path, ", line ", line, ": the label ", label,
                 " is the same number as ", same->second, " of line ", found[same->second],
                 "; write it in one way");
    }
    const auto [same, fresh] = small.emplace(dhp::detail::lower_case(label), label);
    if (!fresh)
      warnings.push_back(dhp::concat(data.path, ", line ", line, ": the labels ", label, " and ",
                                     same->second, " differ in capitals, and are two classes"));
  }
  const bool whole = std::all_of(numbers.begin(), numbers.end(), [](const auto& number) {
    return number.first == std::floor(number.first);
  });
  constexpr std::size_t few = 10;
  dhp::check(classes.size() <= few || numbers.size() < classes.size() || whole, data.path, " has ",
             classes.size(), " different numbers as labels, such as ", classes[1],
             ": --task classify needs classes, not values of a regression");
  const auto& first = data.rows.front();
  const auto as_first = std::count_if(data.rows.begin(), data.rows.end(), [&](const TableRow& row) {
    return row.fields.back() == first.fields.back();
  });
  if (classes.size() > 2 && as_first == 1 && first.line == 1 &&
      !dhp::detail::ends_in(data.path, ".jsonl"))
    warnings.push_back(dhp::concat(data.path, ", line 1: no other row has the label ",
                                   first.fields.back(),
                                   "; if line 1 has the names of the columns, give these to "
                                   "--text-column and --label-column"));
  dhp::check(classes.size() <= few || classes.size() < data.rows.size(), data.path,
             ": each of its samples has a label of its own; is --label-column the right one?");
  if (numbers.size() == classes.size())
    std::transform(numbers.begin(), numbers.end(), classes.begin(),
                   [](const auto& number) { return number.second; });
  if (bert.head == BertHead::classes && !new_head)
    look_at_head(data.path, classes, known, warnings);
  return classes;
}

[[nodiscard]] PublishedTokenizer words_for(const BertOptions& options, const Labeled& data) {
  if (auto given = given_words(options)) return *given;
  Text text;
  for (const auto& row : data.rows) {
    for (std::size_t at = 0; at + 1 < row.fields.size(); ++at)
      text.add_sentence(std::span(row.fields[at]));
    text.end_document();
  }
  return PublishedTokenizer(
      WordPiece(train_wordpiece(text, {.size = options.vocabulary_size, .name = data.path})));
}

}  // namespace

LabeledText load_labeled_text(const BertOptions& options) {
  const auto& run = options.run;
  LabeledText result;
  const auto data = read(options, run.data, result.warnings);
  const auto words = words_for(options, data);
  result.bert = text_model(options, words.vocabulary().size());
  auto& bert = result.bert;
  bert.labels = classes_of(data, bert, run.new_head, result.warnings);
  bert.head = BertHead::classes;
  std::map<std::string, std::int32_t> number_of;
  for (std::size_t at = 0; at < bert.labels.size(); ++at)
    number_of[bert.labels[at]] = static_cast<std::int32_t>(at);

  std::int64_t were_cut = 0, tokens = 0;
  const auto encode = [&](const Labeled& from) {
    SentenceBatcher::Sentences samples;
    for (const auto& [line, row] : from.rows) {
      const auto label = number_of.find(row.back());
      dhp::check(label != number_of.end(), from.path, ", line ", line, ": its label ", row.back(),
                 " is not among the ", number_of.size(), " of ", data.path);
      const auto texts = std::span(row).first(row.size() - 1);
      samples.push_back(words.encode(texts, options.sequence_length, were_cut));
      samples.back().label = label->second;
      tokens += std::ssize(samples.back().ids);
    }
    return samples;
  };
  auto all = encode(data);
  const auto count = std::ssize(all);
  SentenceBatcher::Sentences train, held_out;
  if (!options.test_data.empty()) {
    train = std::move(all);
    held_out = encode(read(options, options.test_data, result.warnings));
  } else {  // in a random order, since files are often sorted
    const dhp::Permutation order(count, run.store.seed, 0);
    const auto kept = count - static_cast<std::int64_t>(run.held_out * static_cast<double>(count));
    for (std::int64_t at = 0; at < count; ++at)
      (at < kept ? train : held_out).push_back(all[static_cast<std::size_t>(order(at))]);
  }
  if (run.evaluate_samples > 0 && held_out.size() > static_cast<std::size_t>(run.evaluate_samples))
    held_out.resize(static_cast<std::size_t>(run.evaluate_samples));
  dhp::check(!train.empty(), run.data,
             ": no sample is left to train on; choose a smaller --held-out");
  for (const auto& sample : held_out) result.labels.push_back(sample.label);
  result.description =
      dhp::concat("text ", run.data, " (", dhp::detail::pluralize(train.size(), "sample"),
                  " to train on, ", held_out.size(), " held out, ", tokens, " tokens, ", were_cut,
                  " cut off, ", dhp::detail::pluralize(bert.labels.size(), "class"),
                  "), vocabulary ", bert.config.vocabulary);
  const auto batcher = [&](SentenceBatcher::Sentences samples) {
    return AnyBatcher(
        SentenceBatcher(std::make_shared<const SentenceBatcher::Sentences>(std::move(samples)),
                        {.longest = options.sequence_length, .labeled = true}));
  };
  result.train = batcher(std::move(train)).first(run.samples);
  result.held_out = batcher(std::move(held_out));
  result.files = model_files(options, bert, words.vocabulary());
  return result;
}
#else
LabeledText load_labeled_text(const BertOptions&) { dhp::fail(without_utf8proc); }
#endif

}  // namespace examples
