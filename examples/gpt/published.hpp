// Reads and writes config.json of a causal decoder in Hugging Face's format: model_type gpt2 or llama.
#pragma once

#include "../data/model_folder.hpp"
#include "../data/published_json.hpp"
#include "config.hpp"

#include <string>
#include <vector>

namespace examples {

/// Returns the text of config.json, by which GPT2LMHeadModel or LlamaForCausalLM loads exported weights.
[[nodiscard]] inline std::string published_config(const GptConfig& config) {
  nlohmann::ordered_json json{
      {"architectures", {config.llama ? "LlamaForCausalLM" : "GPT2LMHeadModel"}},
      {"model_type", config.llama ? "llama" : "gpt2"},
      {"vocab_size", config.vocabulary},
      {"tie_word_embeddings", config.tied},
      {"bos_token_id", config.begin},
      {"eos_token_id", config.end.size() == 1 ? nlohmann::ordered_json(config.end[0])
                                              : nlohmann::ordered_json(config.end)}};
  if (config.llama)
    json.update({{"hidden_act", "silu"},
                 {"hidden_size", config.hidden},
                 {"intermediate_size", config.intermediate()},
                 {"num_hidden_layers", config.layers},
                 {"num_attention_heads", config.heads},
                 {"num_key_value_heads", config.heads_of_keys()},
                 {"max_position_embeddings", config.positions},
                 {"rms_norm_eps", config.epsilon},
                 {"rope_theta", config.rotary_base},
                 {"attention_dropout", config.dropout},
                 {"attention_bias", false},
                 {"mlp_bias", false}});
  else
    json.update({{"activation_function", config.exact_gelu ? "gelu" : "gelu_new"},
                 {"n_embd", config.hidden},
                 {"n_inner", config.intermediate()},
                 {"n_layer", config.layers},
                 {"n_head", config.heads},
                 {"n_positions", config.positions},
                 {"layer_norm_epsilon", config.epsilon},
                 {"embd_pdrop", config.dropout},
                 {"attn_pdrop", config.dropout},
                 {"resid_pdrop", config.dropout}});
  return json.dump(2) + "\n";
}

/// Throws if the model is neither GPT-2 nor Llama, or has parts that dhp does not support. adapter: folder of its
/// adapter.
[[nodiscard]] inline GptConfig load_gpt_config(const std::string& folder,
                                               const std::string& adapter = {}) {
  const auto file = PublishedJson::config_of(folder);
  const auto& path = file.path();
  const auto type = file.get<std::string>("model_type", "none");
  dhp::check(type == "gpt2" || type == "llama", path, ": its model is ", type,
             "; dhp has gpt2 and llama");
  GptConfig result{.llama = type == "llama"};
  const auto number = [&](const char* of_llama, const char* of_gpt2, std::int64_t usual) {
    return file.size(result.llama ? of_llama : of_gpt2, usual);
  };
  const auto without = [&](const char* key, bool usual, const char* what) {
    dhp::check(file.get(key, usual) == usual, path, ": ", key, " is ", !usual, "; dhp has ", what);
  };
  result.hidden = number("hidden_size", "n_embd", 768);
  const auto* const layers = result.llama ? "num_hidden_layers" : "n_layer";
  result.layers = static_cast<int>(file.size(layers, 12, most_layers));
  result.heads = static_cast<int>(number("num_attention_heads", "n_head", 12));
  result.inner = number("intermediate_size", "n_inner", 4 * result.hidden);
  result.vocabulary = number("vocab_size", "vocab_size", 50257);
  result.positions = number("max_position_embeddings", "n_positions", 1024);
  result.sequence_length = result.positions;
  const std::string table = result.llama ? "model.embed_tokens.weight" : "transformer.wte.weight";
  result.tied = file.get("tie_word_embeddings", !result.llama) &&
                !has_own_head(folder, "lm_head.weight", table);
  if (result.tied && !adapter.empty()) {
    const dhp::WeightFiles files(adapter + "/adapter_model.safetensors");
    const auto has = [&](const std::string& name) {
      return files.tensors().contains("base_model.model." + name);
    };
    result.tied = !has("lm_head.weight");  // PEFT then uses both
    dhp::check(!result.tied || !has(table), adapter, " replaces the embedding, but not the head, ",
               "which shares its weights in ", path);
  }
  const auto tokens = [&](const PublishedJson& from, const char* key, std::int64_t usual) {
    std::vector<std::int64_t> ids;
    if (from.part(key).is_array()) ids = from.get(key, ids);
    else if (!from.json().contains(key) || !from.part(key).is_null()) ids = {from.get(key, usual)};
    for (const auto id : ids)
      dhp::check(id >= 0 && id < result.vocabulary, from.path(), ": \"", key, "\" is ", id,
                 ", and the model has the tokens 0 to ", result.vocabulary - 1,
                 "; write the id of one of these there, as in tokenizer.json");
    return std::vector<std::int32_t>(ids.begin(), ids.end());
  };
  // If the tokens are missing, Hugging Face's classes use these defaults.
  result.end = tokens(file, "eos_token_id", result.llama ? 2 : 50256);
  dhp::check(!result.end.empty(), path, ": \"eos_token_id\" names no token that ends a text");
  if (const auto more = folder + "/generation_config.json"; std::filesystem::exists(more))
    for (const auto id : tokens(PublishedJson(more), "eos_token_id", result.end[0]))
      if (!result.ends(id)) result.end.push_back(id);
  const auto begin = tokens(file, "bos_token_id", result.llama ? 1 : 50256);
  result.begin = begin.empty() ? result.end[0] : begin[0];
  result.epsilon =
      file.get(result.llama ? "rms_norm_eps" : "layer_norm_epsilon", result.llama ? 1e-6 : 1e-5);
  dhp::check(result.epsilon > 0 && result.epsilon < 1, path, ": the norms' epsilon is ",
             result.epsilon, "; a small number above 0 is needed");
  result.dropout =
      file.get(result.llama ? "attention_dropout" : "resid_pdrop", result.llama ? 0 : 0.1);
  if (!result.llama) {
    const auto gelu = file.get<std::string>("activation_function", "gelu_new");
    result.exact_gelu = gelu == "gelu";
    dhp::check(gelu == "gelu_new" || gelu == "gelu" || gelu == "gelu_pytorch_tanh", path,
               ": its activation is ", gelu, "; dhp has gelu_new and gelu");
    without("scale_attn_weights", true, "attention with scaled scores");
    without("scale_attn_by_inverse_layer_idx", false, "scores that do not depend on the layer");
    without("add_cross_attention", false, "decoders without an encoder");
    return result;
  }
  result.key_heads = static_cast<int>(number("num_key_value_heads", "", result.heads));
  file.need(file.json(), "hidden_act", "silu", "activation");
  without("attention_bias", false, "attention without biases");
  without("mlp_bias", false, "feed-forward layers without biases");
  dhp::check(file.get("head_dim", result.hidden / result.heads) * result.heads == result.hidden,
             path, ": its heads are not hidden_size / num_attention_heads wide, as dhp's are");
  const auto newer = file.part("rope_parameters"), scaling = file.part("rope_scaling");
  for (const auto& rope : {newer, scaling})
    if (rope.is_object())
      for (const auto* const key : {"rope_type", "type"}) file.need(rope, key, "default", "rope");
  result.rotary_base = file.get(newer, "rope_theta", file.get("rope_theta", 10000.0));
  return result;
}

}  // namespace examples
