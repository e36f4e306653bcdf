// Augments images for training (crops, flips), and resizes them deterministically for evaluation. The random numbers
// are a pure function of sample and epoch (SampleRandom).
#pragma once

#include <dhp/data/resize.hpp>
#include <dhp/data/sample_random.hpp>

#include <cmath>

namespace dhp {

struct AugmentOptions {
  int crop_padding = 0;  ///< black pixels on each side, before a random crop to the original size
  bool flip = false;     ///< mirror the image with probability 1/2
  bool random_resized_crop = false;  ///< crop of random area and ratio, resized ("Inception" crop)
  double area_min = 0.08;            ///< minimum area of the crop, as a share of the image's area
  double area_max = 1.0;
  double ratio_min = 3.0 / 4.0;  ///< minimum of width / height
  double ratio_max = 4.0 / 3.0;
};

namespace detail {
/// Returns a box of random area and aspect ratio (Szegedy et al., "Going deeper with convolutions", 2015). If ten
/// random boxes do not fit into the image, returns the largest centered box with an allowed ratio.
[[nodiscard]] inline Box random_box(int image_height, int image_width,
                                    const AugmentOptions& options, SampleRandom& random) {
  const double area = static_cast<double>(image_height) * image_width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double wanted = area * random.uniform(options.area_min, options.area_max);
    const double ratio =
        std::exp(random.uniform(std::log(options.ratio_min), std::log(options.ratio_max)));
    const int width = static_cast<int>(std::lround(std::sqrt(wanted * ratio)));
    const int height = static_cast<int>(std::lround(std::sqrt(wanted / ratio)));
    if (width < 1 || height < 1 || width > image_width || height > image_height) continue;
    const auto top = random.below(static_cast<std::uint32_t>(image_height - height + 1));
    const auto left = random.below(static_cast<std::uint32_t>(image_width - width + 1));
    return {static_cast<int>(top), static_cast<int>(left), height, width};
  }
  const double ratio = static_cast<double>(image_width) / image_height;
  Box box{0, 0, image_height, image_width};
  if (ratio < options.ratio_min)
    box.height = std::max(1, static_cast<int>(std::lround(image_width / options.ratio_min)));
  if (ratio > options.ratio_max)
    box.width = std::max(1, static_cast<int>(std::lround(image_height * options.ratio_max)));
  box.height = std::min(box.height, image_height);
  box.width = std::min(box.width, image_width);
  box.top = (image_height - box.height) / 2;
  box.left = (image_width - box.width) / 2;
  return box;
}
}  // namespace detail

/// Resizes deterministically, like torchvision: the shorter side to 8/7 of the wanted size (256 for 224), then a center
/// crop. An image of the right size is unchanged.
[[nodiscard]] inline Image fit(const Image& image, int height, int width) {
  if (image.height == height && image.width == width) return image;
  const bool by_height = std::int64_t{height} * image.width >= std::int64_t{width} * image.height;
  const std::int64_t shorter = std::lround((by_height ? height : width) * 8.0 / 7);
  // Only the center is made, so an extreme aspect ratio never creates a huge image.
  const auto center = [&](int side, int wanted) {
    const auto whole = shorter * side / (by_height ? image.height : image.width);
    const auto skipped = std::nearbyint(static_cast<double>(whole - wanted) / 2);  // as in Python
    return detail::ResizeAxis{0, side, whole, static_cast<std::int64_t>(skipped), wanted};
  };
  return detail::resample(image, center(image.height, height), center(image.width, width));
}

/// Augments to height x width. boxed: a decoder has already cut `image` to its random box.
[[nodiscard]] inline Image augment(const Image& image, const AugmentOptions& options, int height,
                                   int width, SampleRandom& random, bool boxed = false) {
  Image result;
  if (options.random_resized_crop) {
    const auto box = boxed ? detail::Box{0, 0, image.height, image.width}
                           : detail::random_box(image.height, image.width, options, random);
    const bool at_once = options.crop_padding == 0;
    result = resize(image, box, height, width, at_once && options.flip && random.chance(0.5));
    if (at_once) return result;
  } else {
    result = fit(image, height, width);
  }
  if (options.crop_padding > 0) {
    const auto places = static_cast<std::uint32_t>(2 * options.crop_padding + 1);
    const int top = static_cast<int>(random.below(places)) - options.crop_padding;
    const int left = static_cast<int>(random.below(places)) - options.crop_padding;
    result = crop(result, {top, left, height, width});
  }
  if (options.flip && random.chance(0.5)) result = mirror(result);
  return result;
}

}  // namespace dhp
