// ImageBatcher makes batches of labeled images: normalized input [N, H, W, C], and the side input "labels" [N].
#pragma once

#include <dhp/data/augment.hpp>
#include <dhp/data/collate.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace dhp {

struct ImageBatcherOptions {
  int height = 0;  ///< height of the model's input
  int width = 0, channels = 3;
  DType dtype = DType::f32;                    ///< type of the input, a floating-point type
  std::vector<double> mean = {};               ///< mean per channel, in units of [0, 1]; empty: 0
  std::vector<double> deviation = {};          ///< deviation per channel; empty: 1
  std::optional<AugmentOptions> augment = {};  ///< empty for evaluation: nothing is random
  std::uint64_t seed = 0;
};

template <Dataset D>
  requires std::same_as<typename D::Sample, LabeledImage>
class ImageBatcher {
 public:
  ImageBatcher(D data, ImageBatcherOptions options)
      : data_(std::move(data)), options_(std::move(options)) {
    const auto& o = options_;
    check(o.height > 0 && o.width > 0 && o.channels > 0, "image batches of ", o.height, " x ",
          o.width, " x ", o.channels, " are empty; set height, width and channels");
    check(is_floating(o.dtype), "images are fed as a floating-point type, not as ", o.dtype);
    for (const auto* values : {&o.mean, &o.deviation})
      check(values->empty() || values->size() == detail::as_size(o.channels),
            "normalization needs a value for each of ", o.channels, " channels, got ",
            values->size());
    for (const double deviation : o.deviation)
      check(deviation > 0, "the deviation of a channel must be positive, got ", deviation);
  }

  [[nodiscard]] std::int64_t size() const { return data_.size(); }
  [[nodiscard]] const D& dataset() const { return data_; }

  /// Returns a batcher for later pipeline stages, which need only labels. If the dataset can read labels alone, it
  /// reads no images, and the input is zeros.
  [[nodiscard]] ImageBatcher labels_only() const {
    ImageBatcher result = *this;
    result.labels_only_ = detail::HasLabels<D>;
    return result;
  }

  [[nodiscard]] HostBatch collate(std::span<const std::int64_t> indices, std::int64_t epoch) const {
    const auto n = std::ssize(indices);
    HostBatch batch;
    batch.input =
        HostArray(options_.dtype, {n, options_.height, options_.width, options_.channels});
    HostArray labels(DType::i32, {n});
    for (std::size_t at = 0; at < indices.size(); ++at)
      naming_sample(indices[at], [&] {
        if constexpr (detail::HasLabels<D>)
          if (labels_only_) {
            labels.values<std::int32_t>()[at] = data_.label(indices[at]);
            return;
          }
        const LabeledImage sample = prepared(indices[at], epoch);
        write(batch.input, at, sample.image);
        labels.values<std::int32_t>()[at] = sample.label;
      });
    batch.side.emplace_back("labels", std::move(labels));
    batch.counts.emplace_back("samples", n);
    return batch;
  }

 private:
  [[nodiscard]] LabeledImage prepared(std::int64_t index, std::int64_t epoch) const {
    const auto& o = options_;
    SampleRandom random(o.seed, epoch, index, DataUse::augment);
    bool boxed = false;
    const detail::PartOf part = [&](int height, int width) {
      boxed = true;
      return detail::random_box(height, width, *o.augment, random);
    };
    LabeledImage result;
    constexpr bool has_parts = requires { data_.get(index, part); };
    if constexpr (has_parts)
      result = data_.get(index, o.augment && o.augment->random_resized_crop ? part : nullptr);
    else result = data_.get(index);
    auto& image = result.image;
    check(image.channels == o.channels, "has ", image.channels, " channels; ", o.channels,
          " would be right");
    image = o.augment ? augment(image, *o.augment, o.height, o.width, random, boxed)
                      : fit(image, o.height, o.width);
    return result;
  }

  // Writes (p / 255 - mean) / deviation for pixel p, computed in double and rounded once.
  void write(HostArray& input, std::size_t at, const Image& image) const {
    visit_floating(options_.dtype, [&]<class T>(TypeTag<T>) {
      const auto channels = detail::as_size(options_.channels);
      std::vector<T> table;  // the results for all pixel values, [C, 256]
      for (std::size_t c = 0; c < channels; ++c)
        for (int value = 0; value < 256; ++value) {
          const double mean = options_.mean.empty() ? 0 : options_.mean[c];
          const double deviation = options_.deviation.empty() ? 1 : options_.deviation[c];
          table.push_back(static_cast<T>((value / 255.0 - mean) / deviation));
        }
      const auto count = image.pixels.size();
      const auto* from = image.pixels.data();
      const T* of = table.data();
      T* to = input.values<T>().data() + at * count;
      detail::visit_channels(options_.channels, [=](auto step) {
        for (std::size_t first = 0; first < count; first += step)
          for (std::size_t c = 0; c < step; ++c) to[first + c] = of[256 * c + from[first + c]];
      });
    });
  }

  D data_;
  ImageBatcherOptions options_;
  bool labels_only_ = false;
};

/// Statistics per channel, in units of [0, 1].
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;  ///< 1 for a constant channel
};
/// Computes the statistics of the first `samples` images from exact integer sums.
template <Dataset D>
  requires std::same_as<typename D::Sample, LabeledImage>
[[nodiscard]] ChannelStatistics channel_statistics(const D& data, std::int64_t samples) {
  std::vector<std::uint64_t> sums, squares;
  std::uint64_t count = 0;
  for (std::int64_t index = 0; index < std::min<std::int64_t>(samples, data.size()); ++index) {
    const Image image = data.get(index).image;
    const auto channels = detail::as_size(image.channels);
    sums.resize(std::max(sums.size(), channels));
    squares.resize(sums.size());
    check(sums.size() == channels, "sample ", index, " has ", channels, " channels, others have ",
          sums.size());
    count += image.pixels.size() / channels;
    for (std::size_t at = 0; at < image.pixels.size(); ++at) {
      const std::uint64_t value = image.pixels[at];
      sums[at % channels] += value;
      squares[at % channels] += value * value;
    }
  }
  ChannelStatistics result;
  for (std::size_t c = 0; c < sums.size(); ++c) {
    const double mean = static_cast<double>(sums[c]) / static_cast<double>(count);
    const double square = static_cast<double>(squares[c]) / static_cast<double>(count);
    const double deviation = std::sqrt(std::max(0.0, square - mean * mean)) / 255;
    result.mean.push_back(mean / 255);
    result.deviation.push_back(deviation > 0 ? deviation : 1);
  }
  return result;
}

}  // namespace dhp
