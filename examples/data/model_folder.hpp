// Finds the folder of a saved model's small files, such as config.json, and whether its head has weights of its own.
#pragma once

#include <dhp/train/checkpoint_index.hpp>
#include <dhp/train/name_map.hpp>
#include <dhp/train/weight_files.hpp>

#include <filesystem>
#include <string>

namespace examples {

/// Returns the newest checkpoint of a run, the folder itself, or the folder of a file. Throws for a damaged checkpoint.
[[nodiscard]] inline std::string model_folder(const std::string& model) {
  if (const auto saved = dhp::newest_checkpoint(model)) return saved->first;
  const auto index = model + "/index.json";
  if (dhp::detail::is_there(index)) {
    try {
      dhp::CheckpointIndex::parse(dhp::text_of(index), index).check_files(model);
    } catch (const dhp::Error& error) {
      dhp::fail("", model,
                " has no checkpoint to go on from, nothing in it is whole: ", error.sentence());
    }
  }
  if (std::filesystem::is_directory(model)) return model;
  const auto parent = std::filesystem::path(model).parent_path().string();
  return parent.empty() ? "." : parent;
}

/// Returns the folder of the model of --model.
[[nodiscard]] inline std::string scored_model_folder(const std::string& model) {
  dhp::check(std::filesystem::exists(model), "--model ", model,
             ": there is no such folder or file");
  return model_folder(model);
}

/// Returns whether published weights have a tensor `head` whose values differ from those of `table`. Hugging Face's
/// classes then use both, even if config.json says that they are tied.
[[nodiscard]] inline bool has_own_head(const std::string& folder, const std::string& head,
                                       const std::string& table) {
  if (!dhp::WeightFiles::are_at(folder)) return false;
  const dhp::WeightFiles files(folder);
  const dhp::NameMap names(files.tensors());
  const auto* const other = names.find(table);
  if (other == nullptr || !files.tensors().contains(head)) return false;
  const auto bytes = [&](const std::string& name) {
    const auto& file = *files.tensors().at(name);
    return file.read(*file.find(name));
  };
  return bytes(head) != bytes(*other);
}

}  // namespace examples
