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
  app.add_option("--depth", options.depth, "14, 26, 50, 101 or 152");
  app.add_option("--width", options.width, "Channels of the stem", number_from_to(1, 1e5));
  app.add_option("--image-size", options.image_size,
                 "Pixels of a side; 0: as the data are, 224 if synthetic", CLI::Range(0, 1024));
  app.add_option("--classes", options.classes,
                 "Of the classifier; 0: as the data say, 1000 if synthetic", number_up_to(1e7));
  app.add_option("--stem-stride", options.stem_stride,
                 "Of the 3x3 stem that images up to 64 pixels get", CLI::Range(1, 2));
  app.add_flag("--zero-init-gamma", options.zero_init_gamma,
               "Residual blocks start as the identity");
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch norm over all replicas' micro-batches");
  app.option_defaults()->group("Training");
  app.add_option("--label-smoothing", options.label_smoothing, "Of the training loss",
                 number_up_to(0.9));
  app.option_defaults()->group("Data");
  app.add_flag("--augment", options.augment, "Random crops and flips");
  app.add_flag("--exif", options.exif, "Turn images as their EXIF orientation says");
  app.add_flag("--skip-bad", options.run.skip_bad,
               "Look at all images first, and leave out those that cannot be read");
  app.add_option("--test-data", options.test_data, "What to evaluate on; else held out of --data");
  app.add_option("--normalize", options.normalize,
                 "By mean and deviation of up to 5000 training images (data), or of ImageNet's "
                 "(imagenet), for which none is read",
                 CLI::IsMember({"data", "imagenet"}));
  app.add_option("--shuffle-window", options.run.shuffle_window,
                 "Samples within which the order is random, of blocks of neighbours; 0: over all",
                 not_negative_number());
  app.add_option("--first-label", options.first_label,
                 "The label of the first class in shards; else 1 if that is the smallest, or 0",
                 not_negative_number());
  app.add_option("--index", options.index, "Folder for the index of shards; else beside them");
  app.add_option("--cache", options.cache,
                 "Folder on a fast disk that keeps what is read of shards on slow storage");
  app.add_option("--cache-gb", options.cache_gb, "GB (10^9 bytes) of --cache at most",
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
