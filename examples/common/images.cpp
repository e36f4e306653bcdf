#include <dhp/data/dataset.hpp>
#include <dhp/data/image.hpp>
#include <dhp/data/image_batcher.hpp>
#include <dhp/data/image_folder.hpp>
#include <dhp/data/synthetic.hpp>

#include "data.hpp"
#include "image_formats.hpp"

#include <filesystem>
#include <optional>
#include <vector>

namespace examples {
namespace {

/// `name` or `name`.gz in a directory.
std::optional<std::string> packed_or_plain(const std::string& directory, const std::string& name) {
  for (const auto& candidate : {directory + "/" + name, directory + "/" + name + ".gz"})
    if (std::filesystem::exists(candidate)) return candidate;
  return std::nullopt;
}

/// Batchers over a training and a held-out dataset; normalised by the training set's statistics.
template <class Train, class HeldOut>
ImageData batchers(const ResNetOptions& options, Train train, HeldOut held_out, int size,
                   int channels, std::vector<std::string> labels, std::string description) {
  constexpr std::int64_t enough_for_statistics = 5000;
  const auto statistics = dhp::channel_statistics(train, enough_for_statistics);
  dhp::ImageBatcherOptions batch{.height = size,
                                 .width = size,
                                 .channels = channels,
                                 .dtype = options.run.precision,
                                 .mean = statistics.mean,
                                 .deviation = statistics.deviation,
                                 .seed = options.run.seed};
  ImageData data{.train = {},
                 .held_out = AnyBatcher(dhp::ImageBatcher(std::move(held_out), batch))
                                 .first(options.run.evaluate_samples),
                 .channels = channels,
                 .image_size = size,
                 .classes = static_cast<std::int64_t>(labels.size()),
                 .labels = std::move(labels),
                 .mean = statistics.mean,
                 .deviation = statistics.deviation,
                 .description = std::move(description)};
  if (options.augment)
    batch.augment = size <= 64 ? dhp::AugmentOptions{.crop_padding = size / 8, .flip = true}
                               : dhp::AugmentOptions{.flip = true, .random_resized_crop = true};
  data.train = AnyBatcher(dhp::ImageBatcher(std::move(train), batch)).first(options.run.samples);
  return data;
}

/// One dataset: its last part, in a random order, is held out.
template <class D>
ImageData split_batchers(const ResNetOptions& options, D dataset, int size, int channels,
                         std::vector<std::string> labels, std::string description) {
  auto [train, held_out] = dhp::split_fraction(
      dhp::Shuffled(std::move(dataset), options.run.seed, -1), options.run.held_out);
  return batchers(options, std::move(train), std::move(held_out), size, channels, std::move(labels),
                  std::move(description));
}

/// Of classes that have numbers only.
std::vector<std::string> numbers_as_labels(std::int64_t classes) {
  std::vector<std::string> labels;
  for (std::int64_t at = 0; at < classes; ++at) labels.push_back(dhp::concat(at));
  return labels;
}

struct IdxPair {
  std::string images;
  std::string labels;
};
std::optional<IdxPair> idx_pair(const std::string& directory, const std::string& which) {
  const auto images = packed_or_plain(directory, which + "-images-idx3-ubyte");
  const auto labels = packed_or_plain(directory, which + "-labels-idx1-ubyte");
  if (!images || !labels) return std::nullopt;
  return IdxPair{*images, *labels};
}

dhp::ImageArray load_pair(const IdxPair& pair, std::int64_t classes) {
  return dhp::load_idx_images(pair.images, pair.labels, static_cast<int>(classes), unpacker());
}

int size_or(const ResNetOptions& options, int of_data) {
  return options.image_size > 0 ? static_cast<int>(options.image_size) : of_data;
}

dhp::ImageFolder open_folder(const ResNetOptions& options, const std::string& path) {
  return dhp::ImageFolder(
      path, decoders(),
      {.skip_bad = options.run.skip_bad, .threads = options.run.loader_threads + 1});
}

std::string folder_text(const dhp::ImageFolder& folder, const std::string& path) {
  auto text = dhp::concat(path, " (", folder.size(), " images in ", folder.classes(), " folders");
  if (!folder.skipped().empty())
    text += dhp::concat(", ", folder.skipped().size(),
                        " that cannot be read were skipped, first: ", folder.skipped().front());
  return text + ")";
}

// Labels are the places of folder names in their order, so that one more or fewer would shift them.
void check_same_classes(const std::vector<std::string>& train, const std::vector<std::string>& test,
                        const std::string& path) {
  const auto [ours, theirs] = std::mismatch(train.begin(), train.end(), test.begin(), test.end());
  if (theirs != test.end() && (ours == train.end() || *theirs < *ours))
    dhp::fail(path, " has a folder \"", *theirs, "\" that the training images have not");
  if (ours != train.end())
    dhp::fail(path, " has no folder \"", *ours, "\", which the training images have");
}

}  // namespace

ImageData load_images(const ResNetOptions& options) {
  const auto& path = options.run.data;
  const std::int64_t idx_classes = options.classes > 0 ? options.classes : 10;
  if (options.run.synthetic()) {
    const int size = size_or(options, 224);
    const auto classes = options.classes > 0 ? options.classes : 1000;
    // So many that --samples are left to train on when some are held out.
    const auto wanted = options.run.samples > 0 ? options.run.samples : 2048;
    const double all = std::ceil(static_cast<double>(wanted) / (1 - options.run.held_out));
    const dhp::SyntheticImages images({.samples = static_cast<std::int64_t>(all),
                                       .classes = static_cast<int>(classes),
                                       .height = size,
                                       .width = size,
                                       .channels = 3,
                                       .seed = options.run.seed});
    return split_batchers(options, images, size, 3, numbers_as_labels(classes), "synthetic images");
  }
  dhp::check(std::filesystem::exists(path), "--data ", path,
             ": there is no such file or directory");
  dhp::check(std::filesystem::is_directory(path), "--data ", path,
             ": is a file; images come from a directory with an IDX pair, with images.npy and "
             "labels.npy, or with a folder per class");
  if (const auto pair = idx_pair(path, "train")) {
    const auto train = load_pair(*pair, idx_classes);
    const auto size = size_or(options, train.height());
    const auto test_directory = options.test_data.empty() ? path : options.test_data;
    const auto text = dhp::concat(path, " (IDX, ", train.size(), " images)");
    const auto test = idx_pair(test_directory, "t10k");
    dhp::check(test || options.test_data.empty(), "--test-data ", options.test_data,
               ": has no t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or .gz");
    if (test)
      return batchers(options, train, load_pair(*test, idx_classes), size, train.channels(),
                      numbers_as_labels(idx_classes), text);
    return split_batchers(options, train, size, train.channels(), numbers_as_labels(idx_classes),
                          text);
  }
  if (std::filesystem::exists(path + "/images.npy")) {
    dhp::check(options.test_data.empty(), "--test-data ", options.test_data,
               ": beside .npy files nothing else is read; --held-out keeps a part of them");
    const auto images = dhp::load_npy_images(path + "/images.npy", path + "/labels.npy",
                                             static_cast<int>(idx_classes));
    return split_batchers(options, images, size_or(options, images.height()), images.channels(),
                          numbers_as_labels(idx_classes),
                          dhp::concat(path, " (npy, ", images.size(), " images)"));
  }
  const bool divided = std::filesystem::is_directory(path + "/train");
  const auto folder = open_folder(options, divided ? path + "/train" : path);
  const std::int64_t classes = folder.classes();
  dhp::check(options.classes == 0 || options.classes == classes, "--classes ", options.classes,
             ", but ", path, " has ", classes, " folders");
  const auto size = size_or(options, 224);
  auto test = options.test_data;
  for (const auto* name : {"/val", "/test"})
    if (test.empty() && divided && std::filesystem::is_directory(path + name)) test = path + name;
  if (test.empty())
    return split_batchers(options, folder, size, 3, folder.class_names(),
                          folder_text(folder, path));
  auto test_folder = open_folder(options, test);
  check_same_classes(folder.class_names(), test_folder.class_names(), test);
  return batchers(options, folder, std::move(test_folder), size, 3, folder.class_names(),
                  folder_text(folder, path));
}

}  // namespace examples
