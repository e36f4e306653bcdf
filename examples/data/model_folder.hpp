// Finds the small files of a saved model: config.json, and a BERT's vocabulary.
#pragma once

#include <dhp/train/checkpoint_index.hpp>

#include <filesystem>
#include <string>

namespace examples {

/// Returns the newest checkpoint of a run, the folder itself, or the folder of a file. Throws for a damaged checkpoint.
[[nodiscard]] inline std::string model_folder(const std::string& model) {
  if (const auto saved = dhp::newest_checkpoint(model)) return saved->first;
  const auto index = model + "/index.json";
  if (std::filesystem::exists(index)) {
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

}  // namespace examples
