// NameMap finds the tensors of a weight file by their names in dhp's models. These names are those of Hugging Face's
// BertForPreTraining, GPT2LMHeadModel and LlamaForCausalLM, and of torchvision's ResNet. Files have other spellings:
// TensorFlow's gamma and beta; no "bert.", "transformer." or "model." in a BertModel, GPT2Model or LlamaModel without
// its head; two names for a decoder's bias; GPT-2's joined queries, keys and values; PEFT's adapters. Other names, as
// in a program's own model, are found unchanged.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/train/gpt2_conv1d.hpp>

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace dhp {

namespace detail {
/// Suffix of the counter of batches in PyTorch's batch norms.
inline constexpr const char* batch_counter = ".num_batches_tracked";
}  // namespace detail

class NameMap {
 public:
  /// names: a map whose keys are the names in the file.
  explicit NameMap(const auto& names) {
    for (const auto& [name, any] : names)
      if (model_name(name) == name) add(name);
    for (const auto& [name, any] : names) {
      add(name);  // the model's own spelling has priority
      as_it_is_.insert(name);
    }
  }

  /// Returns the tensor's name in the file, or null if the file lacks it.
  [[nodiscard]] const std::string* find(const std::string& model) const {
    const auto found = in_file_.find(model);
    if (found != in_file_.end()) return &found->second;
    const auto same = as_it_is_.find(model);  // such as "encoder.weight"
    return same == as_it_is_.end() ? nullptr : &*same;
  }
  /// Maps names in the model to names in the file. Leaves out tensors that no model needs.
  [[nodiscard]] const std::map<std::string, std::string>& all() const { return in_file_; }

  /// Returns, for example, "bert.embeddings.LayerNorm.weight" for "embeddings.LayerNorm.gamma".
  [[nodiscard]] static std::string model_name(std::string name) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> endings{
        {{"LayerNorm.gamma", "LayerNorm.weight"},
         {"LayerNorm.beta", "LayerNorm.bias"},
         {"cls.predictions.decoder.bias", "cls.predictions.bias"}}};
    for (const auto& [published, own] : endings)
      if (name.ends_with(published))
        name.replace(name.size() - published.size(), published.size(), own);
    constexpr std::string_view of_adapters = "base_model.model.";
    if (name.starts_with(of_adapters)) name.erase(0, of_adapters.size());
    for (const auto* const part : {"embeddings.", "encoder.", "pooler."})
      if (name.starts_with(part)) return "bert." + name;
    for (const auto* const part : {"h.", "wte.", "wpe.", "ln_f."})
      if (name.starts_with(part)) return "transformer." + name;
    for (const auto* const part : {"embed_tokens.", "layers.", "norm."})
      if (name.starts_with(part)) return "model." + name;
    return name;
  }

 private:
  void add(const std::string& name) {
    // No model needs position ids, batch counters, masks, rotary frequencies, a decoder that repeats the embedding, or
    // an adapter's copy of the layer that it adapts.
    for (const auto* const of_nobody :
         {"embeddings.position_ids", detail::batch_counter, "cls.predictions.decoder.weight",
          ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", ".base_layer.weight"})
      if (name.ends_with(of_nobody)) return;
    const auto model = model_name(name);
    const auto ending = model.rfind('.');
    if (ending == model.npos || !model.substr(0, ending).ends_with(".attn.c_attn")) {
      in_file_.try_emplace(model, name);
      return;
    }
    for (const auto* const third : detail::conv1d_thirds)
      in_file_.try_emplace(model.substr(0, ending) + third + model.substr(ending), name);
  }
  std::map<std::string, std::string> in_file_;
  std::set<std::string> as_it_is_;
};

}  // namespace dhp
