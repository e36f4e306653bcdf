// Loads the text of a causal decoder as tokens: to train on, to score, and prompts to continue.
#include "../bert/synthetic_text.hpp"
#include "../gpt/document_samples.hpp"
#include "../gpt/published.hpp"
#include "data.hpp"
#include "file_formats.hpp"
#include "model_folder.hpp"
#include "scoring.hpp"
#ifdef DHP_HAS_UTF8PROC
#include "../bert/read_text.hpp"
#include "../gpt/tokenizer_json.hpp"
#include "text_cache.hpp"
#endif

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {
namespace {

/// The model of --load, or a new one.
struct DescribedGpt {
  GptConfig config{};
  std::string folder{};  ///< folder of --load's small files; empty without one
};
[[nodiscard]] DescribedGpt described_gpt(const TextModelOptions& options) {
  DescribedGpt result;
  if (!options.run.load.empty()) result.folder = model_folder(options.run.load);
  if (!result.folder.empty() && std::filesystem::exists(result.folder + "/config.json")) {
    result.config = load_gpt_config(result.folder, options.run.tuning.adapter);
    const auto& has = result.config;
    if (!options.preset.empty()) {
      const auto asked = gpt_preset(options.preset);
      dhp::check(
          asked.layers == has.layers && asked.hidden == has.hidden && asked.llama == has.llama,
          "--preset ", options.preset, " has ", asked.layers, " layers of ", asked.hidden,
          ", and the model in ", result.folder, " has ", has.layers, " of ", has.hidden,
          has.llama ? ", of Llama's shape" : ", of GPT-2's shape", "; leave --preset out");
    }
  } else {
    result.config = gpt_preset(options.preset.empty() ? "tiny" : options.preset);
    result.config.positions = options.sequence_length;
    result.config.vocabulary = 0;
  }
  result.config.sequence_length = options.sequence_length;
  result.config.dropout = options.dropout;
  result.config.recompute = options.run.recompute;
  result.config.share_rows = options.sequence_parallel;
  result.config.exchange_heads = options.run.exchange_heads;
  return result;
}

[[nodiscard]] std::shared_ptr<const TokenText> synthetic(const TextModelOptions& options,
                                                         GptConfig& config) {
  dhp::check(options.vocabulary.empty(), "--vocabulary ", options.vocabulary,
             " does not fit --data synthetic, which has a vocabulary of its own");
  SyntheticTextOptions result{.documents = 2048};
  result.vocabulary_size = std::min(options.vocabulary_size, result.vocabulary_size);
  if (options.run.resident()) {  // for timing: each document is a sample
    result.documents = 1024;
    result.sentences = 1;
    result.shortest = result.longest = options.sequence_length - 1;  // a begin token adds one
    result.vocabulary_size = options.vocabulary_size;
  }
  config.vocabulary = std::max(config.vocabulary, result.vocabulary_size);
  if (config.end.empty()) config.end = {config.begin};
  const auto text = synthetic_text(result);
  auto joined = std::make_shared<TokenText>();
  for (std::int64_t document = 0; document < text.size(); ++document) {
    std::vector<std::int32_t> ids{config.begin};
    const auto sentences = text.sentences_of(document);
    for (auto number = sentences.first; number < sentences.last; ++number) {
      const auto sentence = text.sentence(number);
      ids.insert(ids.end(), sentence.begin(), sentence.end());
    }
    joined->add_sentence(ids);
    joined->end_document();
  }
  return joined;
}

#ifdef DHP_HAS_UTF8PROC
/// Reads documents. column: that of .csv, .tsv and .jsonl files.
[[nodiscard]] std::vector<std::string> read_documents(const std::string& path,
                                                      const std::string& column) {
  dhp::check(std::filesystem::exists(path), path, ": there is no such file or directory");
  check_is_prose(path, "a decoder");
  const auto files = text_files(path);
  dhp::check(column.empty() || std::any_of(files.begin(), files.end(), &SentenceFile::has_columns),
             "--text-column ", column, ": ", path,
             " has no .csv, .tsv or .jsonl file, and no columns");
  std::vector<std::string> documents;
  for (const auto& file : files) {
    const auto text = read_text_file(file, unpacker());
    if (SentenceFile::has_columns(file)) {
      for (auto& row : SentenceFile(text, file).sentences(column))
        documents.push_back(std::move(row));
      continue;
    }
    auto rest = checked_utf8(text, file);
    while (!rest.empty()) {
      const auto end = rest.find(end_of_text);
      documents.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end == rest.npos ? rest.size()
                                          : end + std::string_view(end_of_text).size());
    }
  }
  std::erase_if(documents, [](const std::string& text) {
    return text.find_first_not_of(" \t\r\n") == text.npos;
  });
  dhp::check(!documents.empty(), path, " has no text");
  return documents;
}

[[nodiscard]] std::string column_of(const TextModelOptions& options) {
  return options.text_columns.empty() ? std::string() : options.text_columns[0];
}

/// Encodes documents, each with the begin token before its text.
[[nodiscard]] std::shared_ptr<TokenText> encoded(const std::vector<std::string>& documents,
                                                 const BytePairs& pairs, std::int32_t begin) {
  auto result = std::make_shared<TokenText>();
  BytePairs::Known known;
  for (const auto& document : documents) {
    std::vector<std::int32_t> ids{begin};
    pairs.append(document, ids, known);
    result->add_sentence(ids);
    result->end_document();
  }
  return result;
}

/// Returns the end of an error's sentence: how to make tokenizer.json from merges.txt; empty without merges.txt.
[[nodiscard]] std::string out_of_merges(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/merges.txt")) return "";
  return "; of vocab.json and merges.txt " + how_to_make_tokenizer(folder);
}

/// Returns the text of tokenizer.json, from --load's model or else from --vocabulary. Returns nullopt if there is
/// neither: the tokenizer is then trained on the text.
[[nodiscard]] std::optional<std::string> given_tokenizer(const TextModelOptions& options,
                                                         const DescribedGpt& model) {
  const auto& folder = model.folder;
  const auto of_model = folder + "/tokenizer.json";
  const bool has = !folder.empty() && std::filesystem::exists(of_model);
  dhp::check(has || !options.vocabulary.empty() || model.config.vocabulary == 0, folder,
             " has no tokenizer.json, which its model needs; give one by --vocabulary FILE",
             out_of_merges(folder));
  if (!has && options.vocabulary.empty()) return std::nullopt;
  if (!has) {
    auto given = dhp::text_of(options.vocabulary);
    const auto json = nlohmann::json::parse(given, nullptr, false);
    const auto beside = std::filesystem::path(options.vocabulary).parent_path().string();
    dhp::check(json.is_object() && json.contains("model"), options.vocabulary,
               " is no tokenizer.json, a JSON object that has a \"model\"",
               out_of_merges(beside.empty() ? "." : beside));
    return given;
  }
  auto text = dhp::text_of(of_model);
  dhp::check(options.vocabulary.empty() || dhp::text_of(options.vocabulary) == text,
             "--vocabulary ", options.vocabulary, " differs from ", of_model,
             ", which the model of --load was trained with; leave --vocabulary out");
  return text;
}

/// Finds the ids that separate documents if config.json does not give them.
void find_ends(const BytePairs& pairs, const std::string& name, GptConfig& config) {
  if (!config.end.empty()) return;
  const auto& first = pairs.rules().first;
  config.begin = pairs.find(first.empty() ? end_of_text : first);
  const auto end = pairs.find(end_of_text);
  config.end = {end >= 0 ? end : config.begin};
  dhp::check(config.begin >= 0, name, " has no token ", end_of_text,
             ", and none before each text: one of them has to separate documents");
}

[[nodiscard]] std::shared_ptr<const TokenText> tokenize(const TextModelOptions& options,
                                                        DescribedGpt& model,
                                                        std::map<std::string, std::string>& files) {
  auto& config = model.config;
  const auto& folder = model.folder;
  const auto& path = options.run.data;
  options.run.check_outside(path, options.test_data, options.text_cache);
  const auto given = given_tokenizer(options, model);
  const auto name =
      given ? (options.vocabulary.empty() ? folder + "/tokenizer.json" : options.vocabulary)
            : "the vocabulary of " + path;
  const auto column = column_of(options);
  const auto begin_of = [&](const std::string& words) {
    const auto pairs = load_byte_pairs(PublishedJson(name, words));
    auto wanted = config;
    find_ends(pairs, name, wanted);
    for (const auto id : {wanted.begin, wanted.end[0]})
      dhp::check(id < pairs.size(), name, " has ", pairs.size(),
                 " tokens, but the model separates documents by token ", id,
                 "; is it the tokenizer of another model?");
    return std::pair(pairs, wanted);
  };
  const auto make = [&] {
    const auto documents = read_documents(path, column);
    auto words =
        given ? *given : tokenizer_json(train_byte_pairs(documents, options.vocabulary_size));
    const auto [pairs, wanted] = begin_of(words);
    return TokenizedText{std::move(words), encoded(documents, pairs, wanted.begin)};
  };
  nlohmann::json rules{{"data", std::filesystem::absolute(path).string()},
                       {"column", column},
                       {"tokenizer", "byte pairs 1"},  // raise it if this code's tokens change
                       {"begin", config.begin},
                       {"unicode", utf8proc_unicode_version()}};
  if (given) rules["words"] = dhp::detail::fnv1a(*given);
  else rules["vocabulary_size"] = options.vocabulary_size;
  auto [words, tokens] =
      cached_text(options.text_cache, text_files(path), rules, options.run.prints(), make);
  const auto [pairs, wanted] = begin_of(words);
  config = wanted;
  config.vocabulary = std::max(config.vocabulary, pairs.size());
  files["tokenizer.json"] = words;
  const auto configuration = folder + "/tokenizer_config.json";
  if (given && !folder.empty() && std::filesystem::exists(configuration))
    files["tokenizer_config.json"] = dhp::text_of(configuration);
  else
    files["tokenizer_config.json"] =
        nlohmann::ordered_json{
            {"tokenizer_class", "PreTrainedTokenizerFast"},
            {"clean_up_tokenization_spaces", false},  // transformers 4 would drop spaces of texts
            {"bos_token", pairs.rules().tokens[static_cast<std::size_t>(config.begin)]},
            {"eos_token", pairs.rules().tokens[static_cast<std::size_t>(config.end[0])]}}
            .dump(2) +
        "\n";
  return tokens;
}
/// Loads the whole text of --test-data.
[[nodiscard]] DocumentSamples test_text(const TextModelOptions& options, const GptConfig& config,
                                        const std::map<std::string, std::string>& files) {
  const auto pairs = load_byte_pairs(PublishedJson("tokenizer.json", files.at("tokenizer.json")));
  const auto documents = read_documents(options.test_data, column_of(options));
  return DocumentSamples(encoded(documents, pairs, config.begin), config.end[0],
                         options.sequence_length);
}
#else
[[nodiscard]] DocumentSamples test_text(const TextModelOptions&, const GptConfig&,
                                        const std::map<std::string, std::string>&) {
  return {};
}
[[nodiscard]] std::shared_ptr<const TokenText> tokenize(const TextModelOptions& options,
                                                        DescribedGpt&,
                                                        std::map<std::string, std::string>&) {
  dhp::fail("--data ", options.run.data, ": ", without_utf8proc,
            "; --data synthetic does not need it");
}
#endif

void check_export(const FineTuning& tuning, bool llama) {
  for (const auto* const third : {"c_attn.query", "c_attn.key", "c_attn.value"})
    dhp::check(llama || tuning.export_adapter.empty() || tuning.adapters.matching(third).empty(),
               "--export-adapter: PEFT has one adapter for all of GPT-2's c_attn, but here ", third,
               " has its own; use --export, which merges it into the weights");
}

}  // namespace

GptData load_gpt_text(const TextModelOptions& options) {
  const auto& run = options.run;
  auto model = described_gpt(options);
  auto& config = model.config;
  check_export(run.tuning, config.llama);
  dhp::check(!run.synthetic() || options.test_data.empty(), "--test-data ", options.test_data,
             " does not fit --data synthetic");
  GptData result;
  const auto text =
      run.synthetic() ? synthetic(options, config) : tokenize(options, model, result.files);
  const DocumentSamples all(text, config.end[0], options.sequence_length);
  auto [train, held_out] = options.test_data.empty()
                               ? all.split(run.held_out, run.store.seed)
                               : std::pair(all, test_text(options, config, result.files));
  result.train = AnyBatcher(std::move(train)).first(run.samples);
  result.held_out = AnyBatcher(std::move(held_out)).first(run.evaluate_samples);
  result.files["config.json"] = published_config(config);
  result.config = config;
  result.description = dhp::concat(
      "text ",
      run.synthetic()
          ? std::string("synthetic text")
          : dhp::concat(run.data, " (", dhp::detail::pluralize(text->size(), "document"), ", ",
                        dhp::detail::pluralize(text->items().size(), "token"), ")"),
      ", vocabulary ", config.vocabulary);
  return result;
}

#ifdef DHP_HAS_UTF8PROC
GptScoring prepare_gpt(const ScoreOptions& options) {
  check_row_file(options.output, options.run.prints());
  const auto folder = scored_model_folder(options.run.load);
  GptScoring result;
  result.config = load_gpt_config(folder, options.run.tuning.adapter);
  result.adapters = adapters_of(folder, options.run.tuning.adapter);
  auto& config = result.config;
  const auto words = folder + "/tokenizer.json";
  dhp::check(std::filesystem::exists(words), folder,
             " has no tokenizer.json with the model's vocabulary", out_of_merges(folder));
  const auto pairs = load_byte_pairs(PublishedJson(words));
  dhp::check(pairs.size() <= config.vocabulary, folder, ": its tokenizer has ", pairs.size(),
             " tokens, and its config.json says ", config.vocabulary);
  if (options.sequence_length > 0) config.sequence_length = options.sequence_length;
  dhp::check(config.sequence_length <= config.positions, "--sequence-length ",
             config.sequence_length, ": this model takes ", config.positions, " tokens at most");
  result.decode = [pairs](const std::vector<std::int32_t>& ids) {
    return readable(pairs.decode(ids));
  };
  if (!options.prompts.empty()) {
    std::int64_t tokens = 0;
    for (const auto& prompt : options.prompts) {
      std::vector<std::int32_t> ids;
      if (const auto& first = pairs.rules().first; !first.empty()) ids.push_back(pairs.find(first));
      BytePairs::Known known;
      pairs.append(prompt, ids, known);
      if (ids.empty()) ids.push_back(config.begin);
      tokens += static_cast<std::int64_t>(ids.size());
      result.prompts.push_back(std::move(ids));
    }
    auto text = std::make_shared<TokenText>();
    text->add_sentence(result.prompts.front());
    result.samples = AnyBatcher(DocumentSamples(text, config.end[0], config.sequence_length));
    result.description = dhp::concat(dhp::detail::pluralize(result.prompts.size(), "prompt"), ", ",
                                     dhp::detail::pluralize(tokens, "token"));
    return result;
  }
  const auto documents =
      read_documents(options.input, options.text_columns.empty() ? "" : options.text_columns[0]);
  for (const auto& document : documents) result.bytes += static_cast<std::int64_t>(document.size());
  const auto text = encoded(documents, pairs, config.begin);
  result.samples = AnyBatcher(DocumentSamples(text, config.end[0], config.sequence_length));
  result.description = dhp::concat(dhp::detail::pluralize(documents.size(), "document"), ", ",
                                   dhp::detail::pluralize(text->items().size(), "token"));
  return result;
}
#else
GptScoring prepare_gpt(const ScoreOptions&) { dhp::fail(without_utf8proc); }
#endif

}  // namespace examples
