// The ResNet that options and data describe, and the config.json of a saved one, next to its weights.
#pragma once

#include "../resnet50/model.hpp"
#include "data.hpp"

#include <optional>
#include <string>
#include <vector>

namespace examples {

struct SavedResNet {
  ResNetConfig config{};
  std::vector<double> mean{};         ///< mean of training images per channel, in units of [0, 1]
  std::vector<double> deviation{};    ///< their standard deviation
  std::vector<std::string> labels{};  ///< names of the classes
  bool exif = false;                  ///< images are turned by their EXIF orientation
};

[[nodiscard]] ResNetConfig resnet_config(const ResNetOptions& options, const ImageData& data);

/// Returns names of classes as config.json has them, whose text is UTF-8.
[[nodiscard]] std::vector<std::string> saved_names(const std::vector<std::string>& labels);

/// Returns config.json, with Hugging Face's names where its files have them.
[[nodiscard]] std::string config_of(const SavedResNet& saved);

/// Reads config.json from a folder. Throws if the model is no ResNet, or the file is damaged.
[[nodiscard]] SavedResNet load_saved_resnet(const std::string& folder);

/// Returns the model that --load names, of whatever kind; nullopt if train_resnet50 has not described it.
[[nodiscard]] std::optional<SavedResNet> find_saved_resnet(const std::string& model);

}  // namespace examples
