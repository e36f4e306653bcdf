#include <dhp/data/dataset.hpp>
#include <dhp/data/find_shards.hpp>
#include <dhp/data/image.hpp>
#include <dhp/data/image_batcher.hpp>
#include <dhp/data/image_folder.hpp>
#include <dhp/data/json_label.hpp>
#include <dhp/data/shard_images.hpp>

#include "../report/host_memory.hpp"
#include "data.hpp"
#include "file_formats.hpp"
#include "saved_resnet.hpp"
#include "synthetic_images.hpp"

#include <atomic>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

namespace examples {
namespace {

/// Finds the file of this name in a directory, ignoring case.
std::optional<std::string> file_named(const std::string& directory, const std::string& name) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    if (dhp::detail::lower_case(at->path().filename().string()) == name) return at->path().string();
  return std::nullopt;
}
/// Finds `name` or `name`.gz in a directory.
std::optional<std::string> packed_or_plain(const std::string& directory, const std::string& name) {
  const auto plain = file_named(directory, name);
  return plain ? plain : file_named(directory, name + ".gz");
}

/// Finds a folder of one of these names in a directory, ignoring case.
std::optional<std::string> folder_named(const std::string& directory,
                                        std::initializer_list<const char*> names) {
  for (const auto* name : names)
    if (auto found = file_named(directory, name); found && std::filesystem::is_directory(*found))
      return found;
  return std::nullopt;
}
std::optional<std::string> train_folder(const std::string& directory) {
  return folder_named(directory, {"train", "training"});
}
std::optional<std::string> test_folder(const std::string& directory) {
  return folder_named(directory, {"val", "valid", "validation", "eval", "test", "testing"});
}
/// Returns whether a directory has folders, which then are its classes.
bool has_folder(const std::string& directory) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(directory, error);
  return std::any_of(begin(entries), end(entries), [](const auto& entry) {
    std::error_code unknown;  // set if the entry is a dangling link
    return entry.is_directory(unknown) && !entry.path().filename().string().starts_with('.');
  });
}

/// Returns the statistics that normalize images: ImageNet's with --normalize imagenet; else those saved with the model
/// of --load, if it is only evaluated, or if its training continues and they are not ImageNet's; else the data's own.
dhp::ChannelStatistics statistics_of(const ResNetOptions& options, const auto& train,
                                     int channels) {
  constexpr std::int64_t enough = 5000;
  const dhp::ChannelStatistics imagenet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  if (options.normalize == "imagenet") {
    dhp::check(channels == 3, "--normalize imagenet is for images of 3 channels, and these have ",
               channels, "; --normalize data takes their own mean and deviation");
    return imagenet;
  }
  const auto& run = options.run;
  const auto model = find_saved_resnet(run.load);
  if (model && model->config.image_channels == channels &&
      (run.evaluate_only || (!run.loads_only_weights() && model->mean != imagenet.mean)))
    return {model->mean, model->deviation};
  return dhp::channel_statistics(train, enough);
}

/// Makes batchers over a training and a held-out dataset.
ImageData batchers(const ResNetOptions& options, const dhp::ChannelStatistics& statistics,
                   auto train, auto held_out, int size, int channels,
                   std::vector<std::string> labels, const std::string& description) {
  dhp::ImageBatcherOptions batch{.height = size,
                                 .width = size,
                                 .channels = channels,
                                 .dtype = options.run.store.compute,
                                 .mean = statistics.mean,
                                 .deviation = statistics.deviation,
                                 .seed = options.run.store.seed};
  ImageData data;
  data.held_out =
      AnyBatcher(dhp::ImageBatcher(std::move(held_out), batch)).first(options.run.evaluate_samples);
  data.channels = channels;
  data.image_size = size;
  data.classes = std::ssize(labels);
  data.labels = std::move(labels);
  data.mean = statistics.mean;
  data.deviation = statistics.deviation;
  data.description = dhp::concat("images ", description, ", ", size, " x ", size, " x ", channels,
                                 ", ", dhp::detail::pluralize(data.classes, "class"));
  if (options.augment)
    batch.augment = size <= 64 ? dhp::AugmentOptions{.crop_padding = size / 8, .flip = true}
                               : dhp::AugmentOptions{.flip = true, .random_resized_crop = true};
  data.train = AnyBatcher(dhp::ImageBatcher(std::move(train), batch)).first(options.run.samples);
  return data;
}

/// Shuffles a dataset, holds out its last part, and makes the batchers of both parts.
ImageData split_batchers(const ResNetOptions& options, auto dataset, int size, int channels,
                         std::vector<std::string> labels, const std::string& description) {
  auto [train, held_out] = dhp::split_fraction(
      dhp::shuffled(std::move(dataset), options.run.store.seed, -1), options.run.held_out);
  const auto statistics = statistics_of(options, train, channels);
  return batchers(options, statistics, std::move(train), std::move(held_out), size, channels,
                  std::move(labels), description);
}

/// Returns the names of classes that only have numbers: "0", "1", ...
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
  for (const auto* const mark : {"-", "."}) {  // some unpackers write train-images.idx3-ubyte
    const auto images = packed_or_plain(directory, which + "-images" + mark + "idx3-ubyte");
    const auto labels = packed_or_plain(directory, which + "-labels" + mark + "idx1-ubyte");
    if (images && labels) return IdxPair{*images, *labels};
    dhp::check(!images, images.value_or(""), " has no ", which, "-labels", mark,
               "idx1-ubyte beside it");
  }
  return std::nullopt;
}

dhp::ImageArray load_pair(const IdxPair& pair, std::int64_t classes) {
  return dhp::load_idx_images(pair.images, pair.labels, static_cast<int>(classes), unpacker());
}

int size_or(const ResNetOptions& options, int of_data) {
  return options.image_size > 0 ? static_cast<int>(options.image_size) : of_data;
}

/// Counts images with an EXIF orientation that was not applied.
using Turned = std::shared_ptr<std::atomic<std::int64_t>>;

dhp::DecodeOptions decoding(const ResNetOptions& options, const Turned& turned) {
  auto result = decoding_for(size_or(options, 224));
  result.exif = options.exif;
  result.turned = turned;
  return result;
}
void count_anew(const ResNetOptions& options, const Turned& turned) {
  if (options.normalize == "data") *turned = 0;  // the images are read again, and counted then
}

dhp::ImageFolder open_folder(const ResNetOptions& options, const Turned& turned,
                             const std::string& path,
                             const std::vector<std::string>& classes = {}) {
  dhp::ImageFolder folder(path, decoders(),
                          {.decode = decoding(options, turned),
                           .skip_bad = options.run.skip_bad,
                           .threads = options.run.loader_threads + 1,
                           .classes = classes});
  count_anew(options, turned);
  return folder;
}

std::string folder_text(const dhp::ImageFolder& folder, const std::string& path) {
  auto text = dhp::concat(path, " (", dhp::detail::pluralize(folder.size(), "image"), " in ",
                          dhp::detail::pluralize(folder.classes(), "folder"));
  if (!folder.skipped().empty())
    text += dhp::concat(", ", folder.skipped().size(),
                        " that cannot be read were skipped, first: ", folder.skipped().front());
  return text + ")";
}

/// Returns a sentence about the classes without an image; empty if there are none.
std::string text_of_missing(const dhp::ImageFolder& folder, const std::string& path) {
  auto missing = folder.class_names();
  for (std::int64_t at = 0; at < folder.size(); ++at)
    missing[static_cast<std::size_t>(folder.label(at))].clear();
  std::erase(missing, "");
  if (missing.empty()) return {};
  return dhp::concat(path, " has no image of ", missing.size(), " of ", folder.classes(),
                     " classes, first: ", missing.front());
}

std::string shard_text(const dhp::ShardImages& images, const std::string& path) {
  const auto& shards = images.shards();
  const auto tar =
      std::count_if(shards.begin(), shards.end(), [](auto& shard) { return shard.tar; });
  const auto count = static_cast<std::ptrdiff_t>(shards.size());
  auto text = dhp::concat(path, " (", dhp::detail::pluralize(images.size(), "image"), " in ", count,
                          tar == count ? " tar"
                          : tar == 0   ? " TFRecord"
                                       : " tar and TFRecord",
                          count == 1 ? " shard" : " shards", ", labels from ", images.first_label(),
                          ", index ", images.index_was_kept() ? "read" : "made");
  if (!images.skipped().empty())
    text += dhp::concat(", ", images.skipped().size(),
                        " damaged parts are left out, first: ", images.skipped().front());
  return text + images.left_out_text() + ")";
}

/// Finds the shards of a directory or a pattern, or those in its folders train/ and val/ or test/. If train/ has
/// folders of classes instead of shards, archives beside it are ignored.
dhp::FoundShards shards_at(const std::string& path) {
  const auto train = train_folder(path);
  auto found = dhp::find_shards(train.value_or(path));
  if (!train) return found;
  if (found.empty()) return has_folder(*train) ? found : dhp::find_shards(path);
  if (const auto test = test_folder(path)) found.held_out = dhp::find_shards(*test).train;
  return found;
}

ImageData load_shards(const ResNetOptions& options, const Turned& turned, dhp::FoundShards found) {
  const auto& path = options.run.data;
  if (!options.test_data.empty()) {
    auto test = dhp::find_shards(options.test_data);
    dhp::check(
        !test.empty(), "--test-data ", options.test_data,
        ": has no shards, as --data has: *.tar, *.tfrecord or names like test-00000-of-00008");
    found.held_out = std::move(test.held_out.empty() ? test.train : test.held_out);
  }
  std::shared_ptr<dhp::detail::BlockCache> cache;
  if (!options.cache.empty())
    cache = std::make_shared<dhp::detail::BlockCache>(
        options.cache, static_cast<std::uint64_t>(options.cache_gb * 1e9),
        [](const std::string& sentence) { std::cerr << dhp::concat("warning: ", sentence, "\n"); });
  const auto open = [&](const std::vector<std::string>& paths, std::optional<int> first_label) {
    return dhp::ShardImages(paths, decoders(),
                            {.decode = decoding(options, turned),
                             .skip_bad = options.run.skip_bad,
                             .threads = options.run.loader_threads + 1,
                             .index_folder = options.index,
                             .label_of_json = &dhp::label_of_json,
                             .cache = cache,
                             .first_label = first_label});
  };
  const auto train = open(found.train, options.first_label);
  std::vector<dhp::ShardImages> all{train};
  if (!found.held_out.empty()) all.push_back(open(found.held_out, train.first_label()));
  count_anew(options, turned);
  if (cache) cache->remove_others();
  constexpr int max_classes = 1 << 20;
  dhp::check(options.classes > 0 || train.classes() <= max_classes, "--data ", path,
             ": has labels up to ", train.classes() - 1 + train.first_label(),
             ", which is too many to be likely; confirm the number of classes by --classes");
  const std::int64_t classes = options.classes > 0 ? options.classes : train.classes();
  for (const auto& images : all)
    dhp::check(images.classes() <= classes, "", images.shards().front().path,
               images.shards().size() > 1 ? " and others have" : ": has", " labels up to ",
               images.classes() - 1 + images.first_label(), ", counted from ", images.first_label(),
               ", and not ", classes, " classes, as ",
               options.classes > 0 ? "--classes says" : "the training images have");
  const auto size = size_or(options, 224);
  auto text = shard_text(train, path);
  if (cache)
    text += dhp::concat(", of which ", options.cache, " keeps ", bytes_text(cache->used_bytes()));
  // The statistics are of the first images in a random order, since shards may be sorted by class.
  const auto statistics =
      statistics_of(options, dhp::shuffled(train, options.run.store.seed, -1), 3);
  ImageData result;
  if (all.size() == 1) {
    const auto parts = dhp::split_evenly(train, options.run.held_out, options.run.store.seed);
    result = batchers(options, statistics, parts.train, parts.held_out, size, 3,
                      numbers_as_labels(classes), text);
  } else {
    result =
        batchers(options, statistics, train, all.back(), size, 3, numbers_as_labels(classes), text);
  }
  for (const auto& images : all)
    if (!images.index_error().empty())
      result.warnings.push_back(
          dhp::concat("the index of the shards cannot be saved, so each start makes it anew: ",
                      images.index_error(), "; --index DIR names another folder for it"));
  result.summary = [all, path] {
    std::uint64_t bytes = 0;
    for (const auto& images : all) bytes += images.bytes_read();
    return dhp::concat("images: ", bytes, " bytes were read from ", path, " by this process");
  };
  return result;
}

ImageData load(const ResNetOptions& options, const Turned& turned) {
  const auto& path = options.run.data;
  const std::int64_t idx_classes = options.classes > 0 ? options.classes : 10;
  if (options.run.synthetic()) {
    dhp::check(options.test_data.empty(), "--test-data ", options.test_data,
               ": is not read with synthetic images; use --held-out, which keeps a part of them");
    const int size = size_or(options, 224);
    const auto classes = options.classes > 0 ? options.classes : 1000;
    // Makes enough images: --samples of them train, and the held-out ones come on top.
    const auto wanted = options.run.samples > 0 ? options.run.samples : 2048;
    const double all = std::ceil(static_cast<double>(wanted) / (1 - options.run.held_out));
    const SyntheticImages images({.samples = static_cast<std::int64_t>(all),
                                  .classes = static_cast<int>(classes),
                                  .height = size,
                                  .width = size,
                                  .channels = 3,
                                  .seed = options.run.store.seed});
    return split_batchers(options, images, size, 3, numbers_as_labels(classes), "synthetic images");
  }
  if (auto shards = shards_at(path); !shards.empty())
    return load_shards(options, turned, std::move(shards));
  dhp::check(std::filesystem::exists(path), "--data ", path,
             ": there is no such file or directory");
  dhp::check(std::filesystem::is_directory(path), "--data ", path,
             ": is a file; images come from a directory with an IDX pair, with images.npy and "
             "labels.npy, with TFRecord or tar shards, or with a folder per class");
  if (const auto pair = idx_pair(path, "train")) {
    const auto train = load_pair(*pair, idx_classes);
    const auto size = size_or(options, train.height());
    const auto test_directory = options.test_data.empty() ? path : options.test_data;
    const auto text = dhp::concat(path, " (IDX, ", train.size(), " images)");
    const auto test = idx_pair(test_directory, "t10k");
    dhp::check(test || options.test_data.empty(), "--test-data ", options.test_data,
               ": has no t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or .gz");
    if (test) {
      const auto held_out = load_pair(*test, idx_classes);
      dhp::check(held_out.channels() == train.channels(), test->images, ": has images of ",
                 held_out.channels(), " channels, and ", pair->images, " has ", train.channels());
      return batchers(options, statistics_of(options, train, train.channels()), train, held_out,
                      size, train.channels(), numbers_as_labels(idx_classes), text);
    }
    return split_batchers(options, train, size, train.channels(), numbers_as_labels(idx_classes),
                          text);
  }
  if (const auto array = file_named(path, "images.npy")) {
    const auto labels = file_named(path, "labels.npy");
    dhp::check(labels.has_value(), path, ": has images.npy and no labels.npy");
    dhp::check(options.test_data.empty(), "--test-data ", options.test_data,
               ": is not read with .npy files; use --held-out, which keeps a part of them");
    const auto images = dhp::load_npy_images(*array, *labels, static_cast<int>(idx_classes));
    return split_batchers(options, images, size_or(options, images.height()), images.channels(),
                          numbers_as_labels(idx_classes),
                          dhp::concat(path, " (npy, ", images.size(), " images)"));
  }
  auto train = train_folder(path);
  if (train && !has_folder(*train)) train.reset();  // the images of a class named "train"
  options.run.check_outside(train.value_or(path), options.test_data);
  const auto folder = open_folder(options, turned, train.value_or(path));
  const std::int64_t classes = folder.classes();
  dhp::check(options.classes == 0 || options.classes == classes, "--classes ", options.classes,
             ", but ", path, " has ", classes, " folders");
  const auto size = size_or(options, 224);
  auto test = train ? test_folder(path) : std::nullopt;
  if (!options.test_data.empty()) test = options.test_data;
  if (!test)
    return split_batchers(options, folder, size, 3, folder.class_names(),
                          folder_text(folder, path));
  dhp::check(std::filesystem::is_directory(*test), "--test-data ", *test,
             ": there is no such directory");
  auto test_images = open_folder(options, turned, *test, folder.class_names());
  const auto missing = text_of_missing(test_images, *test);
  // A folder's images are sorted by class, so the first N are taken from a random order.
  const auto mixed = [&](const auto& images) {
    return dhp::shuffled(images, options.run.store.seed, -1);
  };
  const auto statistics = statistics_of(options, mixed(folder), 3);
  const auto make = [&](auto images, auto held_out) {
    return batchers(options, statistics, std::move(images), std::move(held_out), size, 3,
                    folder.class_names(), folder_text(folder, path));
  };
  const bool all = options.run.samples == 0 && options.run.evaluate_samples == 0;
  auto result = all ? make(folder, test_images) : make(mixed(folder), mixed(test_images));
  if (!missing.empty()) result.warnings.push_back(missing);
  return result;
}

/// Throws if the model of --load takes images with other channels or has another number of classes. Returns a warning
/// about the first class whose name differs from the model's; empty if there is none.
std::string other_classes(const RunOptions& run, const ImageData& data) {
  const auto model = find_saved_resnet(run.load);
  if (!model) return {};
  dhp::check(model->config.image_channels == data.channels, "--data ", run.data, ": has images of ",
             data.channels, " channels, and ", run.load, " takes ", model->config.image_channels);
  if (run.new_head) return {};
  dhp::check(model->labels.size() == data.labels.size(), "--data ", run.data, ": has ",
             data.classes, " classes, and ", run.load, " has ", model->labels.size(),
             "; --new-head begins the last layer of exported weights anew");
  const auto names = saved_names(data.labels), numbers = numbers_as_labels(data.classes);
  const auto [ours, theirs] = std::mismatch(names.begin(), names.end(), model->labels.begin());
  if (ours == names.end() || names == numbers || model->labels == numbers) return {};
  return dhp::concat("class ", ours - names.begin(), " of the data is ", *ours, ", and that of ",
                     run.load, " is ", *theirs,
                     ": the model was trained for other classes; --new-head begins the last layer "
                     "of exported weights anew");
}

}  // namespace

ImageData load_images(const ResNetOptions& options) {
  const auto turned = std::make_shared<std::atomic<std::int64_t>>(0);
  auto result = load(options, turned);
  const bool sharded = result.summary != nullptr;
  for (const auto& [name, given] : {std::pair{"--index", !options.index.empty()},
                                    {"--cache", !options.cache.empty()},
                                    {"--first-label", options.first_label.has_value()}})
    if (given && !sharded)
      result.warnings.push_back(dhp::concat(name, " does nothing without shards in --data"));
  if (result.classes == 1 && !options.run.synthetic())
    result.warnings.push_back(dhp::concat("all images are of one class, ", result.labels.front(),
                                          ", and there is nothing to tell apart; is --data ",
                                          options.run.data, " the folder of the classes?"));
  if (const auto other = other_classes(options.run, result); !other.empty())
    result.warnings.push_back(other);
  const auto warning = [](std::int64_t count) {
    return dhp::concat("an EXIF orientation is not applied to ", count,
                       " of the images that were read; --exif turns them");
  };
  if (const auto count = turned->load(); count > 0) {
    result.warnings.push_back(warning(count));
  } else if (!options.exif) {
    result.summary = [turned, warning, before = std::move(result.summary)] {
      const auto late = turned->load();
      return (before ? before() : std::string()) +
             (late > 0 ? (before ? "\n" : "") + ("warning: " + warning(late)) : "");
    };
  }
  return result;
}

}  // namespace examples
