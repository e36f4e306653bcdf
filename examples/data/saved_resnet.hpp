// The config.json next to a saved ResNet's weights, which describes it.
#pragma once

#include "../resnet50/model.hpp"

#include <string>
#include <vector>

namespace examples {

struct SavedResNet {
  ResNetConfig config{};
  std::vector<double> mean{};         ///< of the training images, per channel, in units of [0, 1]
  std::vector<double> deviation{};    ///< the same
  std::vector<std::string> labels{};  ///< of the classes
  bool exif = false;                  ///< images are turned as their EXIF orientation says
};

/// config.json, with the names that Hugging Face's files have where these have them.
[[nodiscard]] std::string config_of(const SavedResNet& saved);

/// Reads it from a folder. Throws where the model is no ResNet, or the file is damaged.
[[nodiscard]] SavedResNet load_saved_resnet(const std::string& folder);

}  // namespace examples
