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

/// Returns the names of classes as config.json has them: U+FFFD replaces bytes that are not UTF-8.
[[nodiscard]] std::vector<std::string> saved_names(const std::vector<std::string>& labels);

/// Returns the text of config.json. Its keys are Hugging Face's where Hugging Face has one for the same value.
[[nodiscard]] std::string config_of(const SavedResNet& saved);

/// Reads config.json from a folder. Throws if train_resnet50 has not written it, or the file is damaged.
[[nodiscard]] SavedResNet load_saved_resnet(const std::string& folder);

/// Returns the description of the model that --load names; nullopt if it has no config.json of train_resnet50.
[[nodiscard]] std::optional<SavedResNet> find_saved_resnet(const std::string& model);

}  // namespace examples
