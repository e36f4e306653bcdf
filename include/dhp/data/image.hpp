// An image in host memory, and a dataset of labeled images of one size.
#pragma once

#include <dhp/data/dataset.hpp>
#include <dhp/data/idx.hpp>
#include <dhp/data/npy.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// An image of u8 pixels [H, W, C].
struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;

  [[nodiscard]] std::size_t at(int y, int x) const {
    return (detail::as_size(y) * detail::as_size(width) + detail::as_size(x)) *
           detail::as_size(channels);
  }
  [[nodiscard]] static Image blank(int height, int width, int channels) {
    Image result{height, width, channels, {}};
    result.pixels.resize(result.at(height, 0));
    return result;
  }
  friend bool operator==(const Image&, const Image&) = default;
};

namespace detail {
/// A rectangle of an image, in pixels.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};
/// A function that returns the wanted part of an image of the given size.
using PartOf = std::function<Box(int height, int width)>;
}  // namespace detail

struct LabeledImage {
  Image image;
  std::int32_t label = 0;
};

/// A dataset in memory; copies share the pixels.
class ImageArray {
 public:
  using Sample = LabeledImage;

  /// images: u8 [N, H, W] (one channel) or [N, H, W, C]; labels: integers [N] in [0, classes). images_name and
  /// labels_name appear in errors.
  ImageArray(HostArray images, const HostArray& labels, int classes, const std::string& images_name,
             const std::string& labels_name)
      : classes_(classes) {
    const auto& shape = images.shape();
    check(
        images.dtype() == DType::u8, images_name, ": images of ", images.dtype(),
        "; u1, from 0 to 255, would be right",
        is_floating(images.dtype()) ? ": (255 * images).round().astype(\"uint8\") of 0 to 1" : "");
    check(labels.shape().rank() == 1, labels_name, ": labels of shape ", labels.shape(),
          "; [N] would be right",
          labels.shape().rank() == 2 ? ": labels.argmax(1) of one-hot ones, or labels[:, 0]" : "");
    check(!is_floating(labels.dtype()), labels_name, ": labels of ", labels.dtype(),
          "; an integer type would be right: labels.astype(\"int64\")");
    check(shape.rank() == 3 || shape.rank() == 4, images_name, ": images of shape ", shape,
          "; [N, H, W] or [N, H, W, C] would be right");
    check(shape.rank() == 3 || shape[1] > 4 || shape[2] <= 4 || shape[3] <= 4, images_name,
          ": images of shape ", shape, ", with channels first; [N, H, W, C] would be right: ",
          "numpy.transpose(images, (0, 2, 3, 1))");
    for (int dim = 1; dim < shape.rank(); ++dim)
      check(shape[dim] >= 1 && shape[dim] <= 1 << 16, images_name, ": images of shape ", shape);
    check(shape[0] > 0, images_name, ": holds no sample");
    check(shape[0] == labels.shape()[0], images_name, " has ", shape[0], " samples, but ",
          labels_name, " has ", labels.shape()[0], " labels");
    Data data{std::move(images), {}};
    const auto append = [&]<class T>(TypeTag<T>) {
      if (labels.dtype() != dtype_of<T>()) return;
      for (const std::int64_t label : labels.values<T>()) {
        check(label >= 0 && label < classes, labels_name, ": label ", data.labels.size(), " is ",
              label, ", not in [0, ", classes, ")",
              label < classes ? "" : "; --classes says how many there are");
        data.labels.push_back(static_cast<std::int32_t>(label));
      }
    };
    append(TypeTag<std::uint8_t>{});
    append(TypeTag<std::int32_t>{});
    append(TypeTag<std::int64_t>{});
    data_ = std::make_shared<const Data>(std::move(data));
  }

  [[nodiscard]] std::int64_t size() const { return shape()[0]; }
  [[nodiscard]] Sample get(std::int64_t index) const {
    detail::check_sample_index(index, size());
    const auto at = detail::as_size(index);
    Sample result{{height(), width(), channels(), {}}, data_->labels[at]};
    const auto bytes = result.image.at(height(), 0);
    const auto* first = data_->images.values<std::uint8_t>().data() + at * bytes;
    result.image.pixels.assign(first, first + bytes);
    return result;
  }
  [[nodiscard]] int classes() const { return classes_; }
  [[nodiscard]] int height() const { return static_cast<int>(shape()[1]); }
  [[nodiscard]] int width() const { return static_cast<int>(shape()[2]); }
  [[nodiscard]] int channels() const {
    return shape().rank() == 4 ? static_cast<int>(shape()[3]) : 1;
  }

 private:
  struct Data {
    HostArray images;
    std::vector<std::int32_t> labels;
  };
  [[nodiscard]] const Shape& shape() const { return data_->images.shape(); }

  int classes_;
  std::shared_ptr<const Data> data_;
};

/// Loads an IDX pair: images u8 [N, H, W] and labels u8 [N], plain or (unpack = gunzip) compressed.
[[nodiscard]] inline ImageArray load_idx_images(const std::string& images,
                                                const std::string& labels, int classes,
                                                detail::Unpack unpack = nullptr) {
  return {load_idx(images, unpack), load_idx(labels, unpack), classes, images, labels};
}

/// Loads an .npy pair: images u1 [N, H, W] or [N, H, W, C], labels u1, i4 or i8 [N].
[[nodiscard]] inline ImageArray load_npy_images(const std::string& images,
                                                const std::string& labels, int classes) {
  return {load_npy(images), load_npy(labels), classes, images, labels};
}

}  // namespace dhp
