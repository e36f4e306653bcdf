// Options that only train_resnet50 has: of the model, and of reading images.
#pragma once

#include <dhp/core/open_file.hpp>

#include "command_line.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <utility>

namespace examples {

inline void add_resnet_options(CommandLine& app, ResNetOptions& options) {
  app.option_defaults()->group("Model");
  app.add_option("--depth", options.depth, "Number of layers: 14, 26, 50, 101 or 152");
  app.add_option("--width", options.width, "Channels of the stem", number_from_to(1, 1e5));
  app.add_option("--image-size", options.image_size,
                 "Pixels per side; 0: the size of the data, 224 for folders and synthetic images",
                 CLI::Range(0, 1024));
  app.add_option("--classes", options.classes,
                 "Number of classes; 0: that of the data, 1000 if synthetic", number_up_to(1e7));
  app.add_option("--stem-stride", options.stem_stride,
                 "Stride of the 3x3 stem, for images up to 64 pixels", CLI::Range(1, 2));
  app.add_flag("--zero-init-gamma", options.zero_init_gamma,
               "Start residual blocks as the identity");
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch norm over the micro-batches of all replicas");
  app.option_defaults()->group("Training");
  app.add_option("--label-smoothing", options.label_smoothing, "Label smoothing; 0: none",
                 number_up_to(0.9));
  app.option_defaults()->group("Data");
  app.add_flag("--augment", options.augment, "Crop and flip training images at random");
  app.add_flag("--exif", options.exif, "Turn images by their EXIF orientation");
  app.add_flag("--skip-bad", options.run.skip_bad,
               "Read all images first, and leave out unreadable ones");
  app.add_option("--test-data", options.test_data, "Evaluation data (default: held out of --data)");
  app.add_option("--normalize", options.normalize,
                 "Normalize by mean and deviation of up to 5000 training images (data) or of "
                 "ImageNet (imagenet)",
                 CLI::IsMember({"data", "imagenet"}));
  app.add_option("--shuffle-window", options.run.shuffle_window,
                 "Window in samples for shuffling blocks of neighboring samples; 0: shuffle all",
                 not_negative_number());
  app.add_option("--first-label", options.first_label,
                 "Label of the first class in shards (default: 1 if that is the smallest, else 0)",
                 not_negative_number());
  app.add_option("--index", options.index, "Folder for the index of shards (default: beside them)");
  app.add_option("--cache", options.cache,
                 "Folder on a fast disk that caches shards of slow storage");
  app.add_option("--cache-gb", options.cache_gb, "Maximum size of --cache, in GB (10^9 bytes)",
                 number_up_to(1e9));
}

/// Sets the options of the model's shape and its images that were not given. If train_resnet50 has exported the model
/// of --load, its values are taken.
inline void take_shape(CommandLine& app, const RunOptions& run) {
  if (!run.begins_anew()) return;
  const std::filesystem::path load = run.load;
  const auto path = (is_directory(load) ? load : load.parent_path()) / "config.json";
  if (!exists(path)) return;
  const auto json = nlohmann::json::parse(dhp::text_of(path.string()), nullptr, false);
  if (!json.is_object() || !json.contains("stem_stride")) return;
  for (const auto& [name, key] : {std::pair{"--depth", "depth"},
                                  {"--width", "width"},
                                  {"--image-size", "image_size"},
                                  {"--stem-stride", "stem_stride"},
                                  {"--exif", "exif"}})
    if (auto* const option = app.get_option(name);
        option->count() == 0 && json.value(key, nlohmann::json(false)) != false)
      set(option, {json[key].dump()});
}

}  // namespace examples
