// A published BERT in Hugging Face's format: config.json, the tokenizer's files, weights (dhp/train/weight_files.hpp).
// A checkpoint of train_bert has a config.json and tokenizer files in the same format.
#pragma once

#include "../data/model_folder.hpp"
#include "../data/published_json.hpp"
#include "config.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace examples {

namespace published {

[[nodiscard]] inline std::string first_architecture(const PublishedJson& file) {
  const auto names = file.get("architectures", std::vector<std::string>{"BertModel"});
  return names.empty() ? "BertModel" : names.front();
}

[[nodiscard]] inline BertHead head_of(const PublishedJson& file) {
  const auto name = first_architecture(file);
  if (name == "BertModel") return BertHead::none;
  if (name == "BertForPreTraining" || name == "BertForMaskedLM") return BertHead::masked_words;
  if (name == "BertForSequenceClassification") return BertHead::classes;
  dhp::fail("", file.path(), ": its model is ", name,
            "; dhp has BertModel, BertForPreTraining, BertForMaskedLM and "
            "BertForSequenceClassification");
}

/// Returns "mean" or "cls", from "pooling_mode" or, in older files, from a flag for each mode. Throws for other modes.
[[nodiscard]] inline std::string pooling_mode(const PublishedJson& file) {
  std::vector<std::string> modes;
  if (const auto named = file.part("pooling_mode"); named.is_string())
    modes = {named.get<std::string>()};
  else if (!named.is_null()) modes = file.get("pooling_mode", modes);
  else
    for (const auto& [flag, mode] : {std::pair{"pooling_mode_cls_token", "cls"},
                                     {"pooling_mode_mean_tokens", "mean"},
                                     {"pooling_mode_max_tokens", "max"},
                                     {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                                     {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                     {"pooling_mode_lasttoken", "lasttoken"}})
      if (file.get(flag, false)) modes.emplace_back(mode);
  for (const auto& mode : modes)
    dhp::check(mode == "mean" || mode == "cls", file.path(), ": ", mode,
               " is an unknown pooling; dhp has the mean and the first token (cls)");
  dhp::check(modes.size() < 2, file.path(), ": several poolings at once; dhp has one at a time");
  return modes.empty() ? "mean" : modes.front();
}

/// Returns class names in numerical order from {"0": "negative", ...}, else LABEL_0, LABEL_1 and so on, usually two.
[[nodiscard]] inline std::vector<std::string> labels_of(const PublishedJson& file) {
  const auto names = file.part("id2label");
  const auto count = names.is_object() ? names.size() : file.get("num_labels", std::size_t{2});
  std::vector<std::string> labels;
  for (std::size_t at = 0; at < count; ++at)
    labels.push_back(file.get(names, dhp::concat(at).c_str(), dhp::concat("LABEL_", at)));
  return labels;
}

}  // namespace published

/// Returns the text of config.json, by which Hugging Face's class with the same head loads exported weights.
[[nodiscard]] inline std::string published_config(const PublishedBert& bert) {
  const auto& config = bert.config;
  const auto* const model = bert.head == BertHead::classes        ? "BertForSequenceClassification"
                            : bert.head == BertHead::masked_words ? "BertForPreTraining"
                                                                  : "BertModel";
  nlohmann::ordered_json json{{"architectures", {model}},
                              {"model_type", "bert"},
                              {"hidden_act", "gelu"},
                              {"hidden_size", config.hidden},
                              {"num_hidden_layers", config.layers},
                              {"num_attention_heads", config.heads},
                              {"intermediate_size", config.intermediate()},
                              {"vocab_size", config.vocabulary},
                              {"max_position_embeddings", config.positions},
                              {"hidden_dropout_prob", config.dropout},
                              {"attention_probs_dropout_prob", config.dropout},
                              {"layer_norm_eps", config.epsilon},
                              {"type_vocab_size", config.segments}};
  for (std::size_t at = 0; at < bert.labels.size(); ++at) {
    json["id2label"][dhp::concat(at)] = bert.labels[at];
    json["label2id"][bert.labels[at]] = at;
  }
  return json.dump(2) + "\n";
}

/// Reads config.json. Throws if the model is no BERT, or has parts that dhp does not support.
[[nodiscard]] inline PublishedBert load_published_bert(const std::string& folder) {
  const auto file = PublishedJson::config_of(folder);
  const auto& path = file.path();
  const auto& json = file.json();
  file.need(json, "model_type", "bert", "model");
  file.need(json, "hidden_act", "gelu", "activation");
  file.need(json, "position_embedding_type", "absolute", "kind of positions");
  dhp::check(!file.get("is_decoder", false), path, ": it is a decoder; dhp has encoders only");
  PublishedBert result{.head = published::head_of(file)};
  auto& config = result.config;
  config.hidden = file.size("hidden_size", 768);
  config.layers = static_cast<int>(file.size("num_hidden_layers", 12, most_layers));
  config.heads = static_cast<int>(file.size("num_attention_heads", 12));
  config.inner = file.size("intermediate_size", 3072);
  config.vocabulary = file.size("vocab_size", 30522);
  config.positions = file.size("max_position_embeddings", 512);
  config.segments = file.size("type_vocab_size", 2);
  config.sequence_length = config.positions;
  config.epsilon = file.get("layer_norm_eps", 1e-12);
  dhp::check(config.epsilon > 0 && config.epsilon < 1, path, ": \"layer_norm_eps\" is ",
             config.epsilon, "; a small number above 0 is needed");
  config.dropout = file.get("hidden_dropout_prob", 0.1);
  config.next_sentence = published::first_architecture(file) != "BertForMaskedLM";
  result.tied = file.get("tie_word_embeddings", true) &&
                !has_own_head(folder, "cls.predictions.decoder.weight",
                              "bert.embeddings.word_embeddings.weight");
  if (result.head == BertHead::classes) result.labels = published::labels_of(file);
  return result;
}

/// Throws if the model scores words by a decoder with weights of its own, which dhp does not support.
inline void check_tied(const PublishedBert& bert) {
  dhp::check(bert.head != BertHead::masked_words || bert.tied,
             "this model's decoder has weights of its own (in its .safetensors, or by "
             "\"tie_word_embeddings\": false in its config.json); dhp's decoder shares those of "
             "the word embedding");
}

/// Returns the head for `predict`: "logits", "embeddings", or "automatic" (logits of a classifier, else embeddings).
[[nodiscard]] inline BertHead head_to_predict(const PublishedBert& bert,
                                              const std::string& predict) {
  const bool logits =
      predict == "logits" || (predict == "automatic" && bert.head == BertHead::classes);
  dhp::check(!logits || bert.head != BertHead::none,
             "--predict logits: this model has no head that gives logits; choose embeddings");
  if (logits) check_tied(bert);
  return logits ? bert.head : BertHead::none;
}

/// How sentence-transformers turns a sentence into a vector, according to modules.json and the files beside it.
struct SentencePooling {
  bool first_token = false;  ///< the first token is the vector; else the mean of all tokens
  bool normalize = false;
  bool lower_case = false;   ///< texts get lower case before the tokenizer
  std::int64_t longest = 0;  ///< maximum length in tokens; 0: the files set no limit

  [[nodiscard]] std::int64_t longest_of(const BertConfig& config) const {
    return longest > 0 ? std::min(longest, config.positions) : config.positions;
  }
};

[[nodiscard]] inline SentencePooling load_sentence_pooling(const std::string& folder) {
  SentencePooling result;
  const auto length = folder + "/sentence_bert_config.json";
  if (std::filesystem::exists(length)) {
    const PublishedJson file(length);
    result.longest = file.get("max_seq_length", std::int64_t{0});
    result.lower_case = file.get("do_lower_case", false);
  }
  const auto tokenizer = folder + "/tokenizer_config.json";
  if (result.longest == 0 && std::filesystem::exists(tokenizer)) {
    const auto most = PublishedJson(tokenizer).get("model_max_length", 0.0);
    if (most >= 1 && most < 1e9)
      result.longest = static_cast<std::int64_t>(most);  // 1e30: no limit
  }
  const auto prompts = folder + "/config_sentence_transformers.json";
  if (std::filesystem::exists(prompts)) {
    const PublishedJson file(prompts);
    const auto prompt = file.get("default_prompt_name", std::string());
    dhp::check(file.get(file.part("prompts"), prompt.c_str(), std::string()).empty(), prompts,
               ": its prompt \"", prompt,
               "\" precedes each text, which dhp does not support; set default_prompt_name to "
               "null, and write the prompt into the texts");
  }
  const auto path = folder + "/modules.json";
  if (!std::filesystem::exists(path)) return result;
  const auto modules = nlohmann::json::parse(dhp::text_of(path), nullptr, false);
  dhp::check(modules.is_array(), path, " is damaged: it is no JSON array");
  const PublishedJson file(path, "{}");  // its errors name modules.json
  for (const auto& module : modules) {
    const auto type = file.get<std::string>(module, "type", "");
    const auto name = type.substr(type.rfind('.') == type.npos ? 0 : type.rfind('.') + 1);
    if (name == "Normalize") result.normalize = true;
    if (name == "Transformer" || name == "Normalize") continue;
    dhp::check(name == "Pooling", path, ": its module ", type,
               " is unknown; dhp has Transformer, Pooling and Normalize");
    const auto at = folder + "/" + file.get<std::string>(module, "path", "1_Pooling");
    const PublishedJson pooling(at + "/config.json");
    result.first_token = published::pooling_mode(pooling) == "cls";
  }
  return result;
}

}  // namespace examples
