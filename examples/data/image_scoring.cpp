#include <dhp/data/image_batcher.hpp>

#include "file_formats.hpp"
#include "model_folder.hpp"
#include "saved_resnet.hpp"
#include "scoring.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace examples {
namespace {

/// A dataset of image files without labels.
class ImageFiles {
 public:
  using Sample = dhp::LabeledImage;

  ImageFiles(std::vector<std::string> files, const dhp::DecodeOptions& decoding)
      : files_(std::make_shared<std::vector<std::string>>(std::move(files))),
        decoders_(decoders()),
        decoding_(decoding) {}
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(files_->size()); }
  [[nodiscard]] Sample get(std::int64_t index) const {
    dhp::detail::check_sample_index(index, size());
    const auto& path = (*files_)[static_cast<std::size_t>(index)];
    try {
      return {dhp::read_image(path, decoders_, decoding_), 0};
    } catch (const dhp::Error& error) {
      dhp::fail(error.sentence(), "; --skip-bad skips such files");
    }
  }

 private:
  std::shared_ptr<const std::vector<std::string>> files_;
  std::vector<dhp::Decoder> decoders_;
  dhp::DecodeOptions decoding_;
};

/// Returns the images of an .npy or IDX file.
[[nodiscard]] dhp::ImageArray images_in(const std::string& path, std::int64_t channels) {
  auto images =
      dhp::detail::ends_in(path, ".npy") ? dhp::load_npy(path) : dhp::load_idx(path, unpacker());
  const auto& shape = images.shape();
  const dhp::HostArray labels(dhp::DType::u8, {shape.rank() > 0 ? shape[0] : 0});
  dhp::ImageArray result(std::move(images), labels, 1, path, path);
  dhp::check(result.channels() == channels, "--input ", path, ": has ", result.channels(),
             " channels; ", channels, " would be right for this model");
  return result;
}

[[nodiscard]] AnyBatcher batcher_of(auto images, const SavedResNet& saved, dhp::DType precision) {
  const auto size = static_cast<int>(saved.config.image_size);
  return AnyBatcher(dhp::ImageBatcher(std::move(images),
                                      {.height = size,
                                       .width = size,
                                       .channels = static_cast<int>(saved.config.image_channels),
                                       .dtype = precision,
                                       .mean = saved.mean,
                                       .deviation = saved.deviation}));
}

/// Removes the files that cannot be read. result.description reports them; result.numbers gets the numbers of the
/// others.
void skip_bad(std::vector<std::string>& files, const dhp::DecodeOptions& decoding, int threads,
              const std::string& path, ImageScoring& result) {
  auto& kept = result.numbers;
  kept.resize(files.size());
  std::iota(kept.begin(), kept.end(), 1);
  const auto file = [&](std::int64_t number) {
    return files[static_cast<std::size_t>(number - 1)];
  };
  std::vector<std::string> wrong;
  dhp::detail::keep_good(
      kept, threads,
      [&](std::int64_t number) { (void)dhp::read_image(file(number), decoders(), decoding); },
      [&](std::string why) { wrong.push_back(std::move(why)); });
  dhp::check(!kept.empty(), "--input ", path,
             ": holds no image that can be read; first: ", wrong.empty() ? "" : wrong[0]);
  std::vector<std::string> good;
  std::string skipped;
  for (std::int64_t number = 1; number <= std::ssize(files); ++number)
    if (std::ranges::binary_search(kept, number)) good.push_back(file(number));
    else skipped += dhp::concat(skipped.empty() ? "" : ", ", number);
  if (!wrong.empty())
    result.description =
        dhp::concat("; ", wrong.size(), " that cannot be read have no row: number ", skipped,
                    "; first: ", wrong[0]);
  files = std::move(good);
}

[[nodiscard]] AnyBatcher images_of(const ScoreOptions& options, const SavedResNet& saved,
                                   ImageScoring& result) {
  const auto& path = options.input;
  const auto precision = options.run.store.compute;
  dhp::check(std::filesystem::exists(path), "--input ", path,
             ": there is no such file or directory");
  const bool folder = std::filesystem::is_directory(path);
  const auto extension = std::filesystem::path(path).extension().string();
  if (folder || dhp::detail::decoder_for(decoders(), extension) != nullptr) {
    auto files = folder ? dhp::files_below(path) : std::vector<std::string>{path};
    dhp::check(!files.empty(), "--input ", path, ": has no file");
    auto decoding = decoding_for(static_cast<int>(saved.config.image_size));
    decoding.exif = saved.exif;
    decoding.channels = static_cast<int>(saved.config.image_channels);
    if (options.run.skip_bad)
      skip_bad(files, decoding, options.run.loader_threads + 1, path, result);
    return batcher_of(ImageFiles(std::move(files), decoding), saved, precision);
  }
  return batcher_of(images_in(path, saved.config.image_channels), saved, precision);
}

}  // namespace

ImageScoring prepare_images(const ScoreOptions& options) {
  check_row_file(options.output, options.run.prints());
  const auto folder = scored_model_folder(options.run.load);
  ImageScoring result;
  result.resnet = std::make_shared<SavedResNet>(load_saved_resnet(folder));
  const auto& saved = *result.resnet;
  result.adapters = adapters_of(folder);
  result.samples = images_of(options, saved, result);
  result.what = "images";
  result.rows_of.assign(static_cast<std::size_t>(result.samples.size()), 1);
  result.output = {.path = options.output,
                   .what = "logits",
                   .columns = saved.labels,
                   .rows = result.samples.size(),
                   .wide = options.run.store.compute == dhp::DType::f64,
                   .best = true};
  result.description =
      dhp::concat(dhp::detail::pluralize(result.samples.size(), "image"), " of ",
                  saved.config.image_size, " x ", saved.config.image_size, result.description);
  return result;
}

}  // namespace examples
