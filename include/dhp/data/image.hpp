// An image in host memory, and a dataset of labeled images of one size, as in IDX and .npy files.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/dataset.hpp>
#include <dhp/data/idx.hpp>
#include <dhp/data/npy.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dhp {

/// [H, W, C], u8.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<std::uint8_t> pixels;

  [[nodiscard]] std::size_t at(int y, int x) const {
    return (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) +
            static_cast<std::size_t>(x)) *
           static_cast<std::size_t>(channels);
  }
  [[nodiscard]] static Image blank(int height, int width, int channels) {
    Image made{height, width, channels, {}};
    made.pixels.resize(made.at(height, 0));
    return made;
  }
  friend bool operator==(const Image&, const Image&) = default;
};

struct LabelledImage {
  Image image;
  std::int32_t label = 0;
};

/// Throws unless each of `samples` has a label in [0, classes); errors name the files.
inline void check_labels(const std::vector<std::int32_t>& labels, std::int64_t samples, int classes,
                         const std::string& samples_name, const std::string& labels_name) {
  check(samples > 0, "", samples_name, ": holds no sample");
  check(samples == static_cast<std::int64_t>(labels.size()), "", samples_name, " has ", samples,
        " samples, but ", labels_name, " has ", labels.size(), " labels");
  for (std::size_t at = 0; at < labels.size(); ++at)
    check(labels[at] >= 0 && labels[at] < classes, "", labels_name, ": label ", at, " is ",
          labels[at], ", not in [0, ", classes, ")");
}

/// A dataset in memory; copies share the pixels.
class ImageArray {
 public:
  using Sample = LabelledImage;

  /// pixels: [N, H, W] (one channel) or [N, H, W, C]; labels: N in [0, classes). `images_name` and
  /// `labels_name` appear in errors.
  ImageArray(const Shape& shape, std::vector<std::uint8_t> pixels, std::vector<std::int32_t> labels,
             int classes, const std::string& images_name, const std::string& labels_name)
      : classes_(classes) {
    check(shape.rank() == 3 || shape.rank() == 4, "", images_name, ": images of shape ", shape,
          "; [N, H, W] or [N, H, W, C] would be right");
    for (int dim = 1; dim < shape.rank(); ++dim)
      check(shape[dim] >= 1 && shape[dim] <= 1 << 16, "", images_name, ": images of shape ", shape);
    check_labels(labels, shape[0], classes, images_name, labels_name);
    check(shape.count() == static_cast<std::int64_t>(pixels.size()), "", images_name, ": shape ",
          shape, " needs ", shape.count(), " pixels, got ", pixels.size());
    height_ = static_cast<int>(shape[1]);
    width_ = static_cast<int>(shape[2]);
    channels_ = shape.rank() == 4 ? static_cast<int>(shape[3]) : 1;
    data_ = std::make_shared<const Data>(Data{std::move(pixels), std::move(labels)});
  }

  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(data_->labels.size());
  }
  [[nodiscard]] Sample get(std::int64_t index) const {
    check_sample_index(index, size());
    Sample made{{height_, width_, channels_, {}}, data_->labels[static_cast<std::size_t>(index)]};
    const auto bytes = made.image.at(height_, 0);
    const auto* first = data_->pixels.data() + static_cast<std::size_t>(index) * bytes;
    made.image.pixels.assign(first, first + bytes);
    return made;
  }
  [[nodiscard]] int classes() const { return classes_; }
  [[nodiscard]] int height() const { return height_; }
  [[nodiscard]] int width() const { return width_; }
  [[nodiscard]] int channels() const { return channels_; }

 private:
  struct Data {
    std::vector<std::uint8_t> pixels;
    std::vector<std::int32_t> labels;
  };
  int classes_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
  std::shared_ptr<const Data> data_;
};

/// An IDX pair: images u8 [N, H, W] and labels u8 [N], plain or (unpack = gunzip) compressed.
[[nodiscard]] inline ImageArray load_idx_images(const std::string& images,
                                                const std::string& labels, int classes,
                                                Unpack unpack = nullptr) {
  auto pixels = load_idx(images, unpack);
  const auto marks = load_idx(labels, unpack);
  check(marks.shape.rank() == 1, "", labels, ": labels of shape ", marks.shape,
        "; [N] would be right");
  return ImageArray(pixels.shape, std::move(pixels.values),
                    {marks.values.begin(), marks.values.end()}, classes, images, labels);
}

/// Labels u1, i4 or i8 [N]; values outside [0, classes) become -1, which check_labels rejects.
[[nodiscard]] inline std::vector<std::int32_t> load_npy_labels(const std::string& path,
                                                               int classes) {
  const auto marks = load_npy(path);
  check(marks.shape.rank() == 1, "", path, ": labels of shape ", marks.shape,
        "; [N] would be right");
  check(!is_floating(marks.dtype), "", path, ": labels of ", marks.dtype,
        "; an integer type would be right");
  std::vector<std::int32_t> values;
  const auto append = [&]<class T>(Tag<T>) {
    for (const std::int64_t value : marks.values<T>())
      values.push_back(value < 0 || value >= classes ? -1 : static_cast<std::int32_t>(value));
  };
  if (marks.dtype == DType::u8) append(Tag<std::uint8_t>{});
  if (marks.dtype == DType::i32) append(Tag<std::int32_t>{});
  if (marks.dtype == DType::i64) append(Tag<std::int64_t>{});
  return values;
}

/// An .npy pair: images u1 [N, H, W] or [N, H, W, C], and labels.
[[nodiscard]] inline ImageArray load_npy_images(const std::string& images,
                                                const std::string& labels, int classes) {
  const auto pixels = load_npy(images);
  check(pixels.dtype == DType::u8, "", images, ": images of ", pixels.dtype, "; u1 would be right");
  return ImageArray(pixels.shape, pixels.values<std::uint8_t>(), load_npy_labels(labels, classes),
                    classes, images, labels);
}

}  // namespace dhp
