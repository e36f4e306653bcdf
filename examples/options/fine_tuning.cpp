#include "fine_tuning.hpp"

#include <dhp/core/open_file.hpp>

#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

namespace examples {

bool FineTuning::trains(const std::string& name, const std::string& head,
                        std::set<std::string>& found) const {
  const bool of_head = !head.empty() && name.starts_with(head);
  dhp::check(export_adapter.empty() || !of_head || !dhp::is_of_adapter(name),
             "--export-adapter: ", name,
             " would adapt a layer of the head, which PEFT saves whole without adapters; "
             "choose other layers by --lora, or use --export");
  bool frozen = false;
  for (const auto& pattern : freeze)
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) == 0) {
      found.insert(pattern);
      frozen = true;
    }
  if (frozen) return false;
  return adapters.layers.empty() || dhp::is_of_adapter(name) || of_head;
}

dhp::LowRankOptions read_adapter_config(const std::string& folder) {
  const auto path = folder + "/adapter_config.json";
  dhp::check(std::filesystem::exists(path), folder,
             " has no adapter_config.json: it is no adapter in PEFT's format");
  const auto json = nlohmann::json::parse(dhp::text_of(path), nullptr, false);
  dhp::check(json.is_object(), path, " is damaged: it is no JSON object");
  nlohmann::json plain{{"peft_type", "LORA"}, {"use_dora", false}, {"use_rslora", false},
                       {"use_qalora", false}, {"bias", "none"},    {"lora_bias", false}};
  for (const auto* const key :
       {"rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication",
        "exclude_modules", "trainable_token_indices", "target_parameters", "use_bdlora",
        "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config"})
    plain[key] = nullptr;
  for (const auto& [key, usual] : plain.items())
    dhp::check(!json.contains(key) || json[key].empty() || json[key] == usual, path, ": its ", key,
               " is ", json.contains(key) ? json[key].dump() : "",
               "; dhp has plain LoRA without biases on the target_modules of all layers, and no "
               "other adapter");
  const auto begun = json.value("init_lora_weights", nlohmann::json(true));
  const std::set<nlohmann::json> beside{nullptr, true, false, "gaussian", "eva", "orthogonal"};
  dhp::check(beside.contains(begun), path, ": its init_lora_weights is ", begun.dump(),
             ", which also changes the model's own weights; convert it to plain LoRA by "
             "path_initial_model_for_weight_conversion of PEFT's save_pretrained");
  dhp::LowRankOptions result;
  try {
    result.rank = json.at("r").get<std::int64_t>();
    result.alpha = json.at("lora_alpha").get<double>();
    result.dropout = json.value("lora_dropout", 0.0);
    const auto& layers = json.at("target_modules");
    if (layers.is_string()) result.layers = {layers.get<std::string>()};
    else result.layers = layers.get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    dhp::fail("", path,
              " is damaged: r and lora_alpha must be numbers, target_modules names of layers");
  }
  dhp::check(
      result.rank >= 1 && !result.layers.empty() && result.dropout >= 0 && result.dropout < 1, path,
      " is damaged: it has rank ", result.rank, " for ", result.layers.size(),
      " kinds of layers, and a dropout of ", result.dropout);
  return result;
}

dhp::LowRankOptions adapters_of(const std::string& folder, const std::string& adapter) {
  if (adapter.empty() && !std::filesystem::exists(folder + "/adapter_config.json")) return {};
  return read_adapter_config(adapter.empty() ? folder : adapter);
}

std::string adapter_config(const dhp::LowRankOptions& adapters, const std::string& head) {
  nlohmann::ordered_json json{
      {"peft_type", "LORA"},
      {"task_type",
       head == "classifier." ? nlohmann::ordered_json("SEQ_CLS") : nlohmann::ordered_json()},
      {"base_model_name_or_path", nullptr},
      {"r", adapters.rank},
      {"lora_alpha", adapters.alpha},
      {"lora_dropout", adapters.dropout},
      {"target_modules", adapters.layers},
      {"modules_to_save", nullptr},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true}};
  if (!head.empty()) json["modules_to_save"] = {head.substr(0, head.find('.'))};
  return json.dump(2) + "\n";
}

}  // namespace examples
