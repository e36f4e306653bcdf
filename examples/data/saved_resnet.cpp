#include "saved_resnet.hpp"

#include "model_folder.hpp"
#include "published_json.hpp"

#include <algorithm>

namespace examples {
namespace {
constexpr const char* own_key = "stem_stride";  // no published ResNet's config.json has this key

// A folder's name may be invalid UTF-8.
std::string to_text(const nlohmann::ordered_json& json) {
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}
}  // namespace

ResNetConfig resnet_config(const ResNetOptions& options, const ImageData& data) {
  return {.depth = options.depth,
          .width = options.width,
          .image_size = data.image_size,
          .image_channels = data.channels,
          .classes = data.classes,
          .stem_stride = options.stem_stride,
          .zero_init_gamma = options.zero_init_gamma,
          .synchronized_batch_norm = options.sync_batch_norm,
          .label_smoothing = options.label_smoothing,
          .recompute = options.run.recompute};
}

std::vector<std::string> saved_names(const std::vector<std::string>& labels) {
  return nlohmann::ordered_json::parse(to_text(labels));
}

std::string config_of(const SavedResNet& saved) {
  const auto& config = saved.config;
  nlohmann::ordered_json json{{"model_type", "resnet"},
                              {"depth", config.depth},
                              {"width", config.width},
                              {own_key, config.stem_stride},
                              {"num_channels", config.image_channels},
                              {"image_size", config.image_size},
                              {"image_mean", saved.mean},
                              {"image_std", saved.deviation},
                              {"exif", saved.exif}};
  auto& labels = json["id2label"] = nlohmann::ordered_json::object();
  for (std::size_t at = 0; at < saved.labels.size(); ++at)
    labels[dhp::concat(at)] = saved.labels[at];
  return to_text(json);
}

SavedResNet load_saved_resnet(const std::string& folder) {
  const auto file =
      PublishedJson::config_of(folder, "which says what model it is; train_resnet50 saves one");
  const auto& path = file.path();
  file.need(file.json(), "model_type", "resnet", "model");
  dhp::check(file.json().contains(own_key), path,
             ": was not written by train_resnet50; load its weights there by --load, and --export "
             "them with a config.json that fits");
  const auto number = [&](const char* key) { return file.size(key, 0, 1 << 20); };
  SavedResNet result;
  auto& config = result.config;
  config.depth = static_cast<int>(number("depth"));
  (void)resnet_blocks(config.depth);
  config.width = number("width");
  config.stem_stride = static_cast<int>(number(own_key));
  config.image_channels = number("num_channels");
  config.image_size = number("image_size");
  result.mean = file.get("image_mean", std::vector<double>());
  result.deviation = file.get("image_std", std::vector<double>());
  result.exif = file.get("exif", false);
  const auto channels = static_cast<std::size_t>(config.image_channels);
  dhp::check(result.mean.size() == channels && result.deviation.size() == channels &&
                 std::all_of(result.deviation.begin(), result.deviation.end(),
                             [](double value) { return value > 0; }),
             path, ": \"image_mean\" and \"image_std\" need a number for each of ", channels,
             " channels, those of image_std above 0");
  const auto labels = file.part("id2label");
  dhp::check(labels.is_object() && !labels.empty(), path, ": \"id2label\" names no class");
  for (std::size_t at = 0; at < labels.size(); ++at)
    result.labels.push_back(file.get(labels, dhp::concat(at).c_str(), dhp::concat(at)));
  config.classes = std::ssize(labels);
  return result;
}

std::optional<SavedResNet> find_saved_resnet(const std::string& model) {
  if (model.empty()) return std::nullopt;
  const auto folder = model_folder(model);
  if (!std::filesystem::exists(folder + "/config.json") ||
      !PublishedJson::config_of(folder).json().contains(own_key))
    return std::nullopt;
  return load_saved_resnet(folder);
}

}  // namespace examples
