// Where the small files of a saved model are: config.json, and of a BERT its words.
#pragma once

#include <dhp/train/checkpoint_index.hpp>

#include <filesystem>
#include <string>

namespace examples {

/// The newest checkpoint of a run, the folder itself, or that of a file.
[[nodiscard]] inline std::string model_folder(const std::string& model) {
  if (const auto saved = dhp::newest_checkpoint(model)) return saved->first;
  if (std::filesystem::is_directory(model)) return model;
  const auto parent = std::filesystem::path(model).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace examples
