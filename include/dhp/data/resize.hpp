// Crop, mirror and resize. Resizing is bilinear and antialiased like Pillow's BILINEAR: the
// triangle filter widens when the image shrinks.
#pragma once

#include <dhp/data/image.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace dhp {

/// A rectangle of an image, in pixels.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

/// Crops; parts of the box outside the image are black.
[[nodiscard]] inline Image crop(const Image& image, const Box& box) {
  check(box.height > 0 && box.width > 0, "crop: a box of ", box.height, " x ", box.width);
  Image made = Image::blank(box.height, box.width, image.channels);
  const int first = std::max(0, -box.left);
  const int last = std::min(box.width, image.width - box.left);
  if (first >= last) return made;
  for (int y = 0; y < box.height; ++y) {
    const int from = y + box.top;
    if (from < 0 || from >= image.height) continue;
    std::copy_n(image.pixels.data() + image.at(from, box.left + first),
                (last - first) * image.channels, made.pixels.data() + made.at(y, first));
  }
  return made;
}

/// Flips horizontally.
[[nodiscard]] inline Image mirror(const Image& image) {
  Image made = Image::blank(image.height, image.width, image.channels);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      std::copy_n(image.pixels.data() + image.at(y, x), image.channels,
                  made.pixels.data() + made.at(y, image.width - 1 - x));
  return made;
}

/// The weights of one output position along one axis: inputs first, first + 1, ...
struct ResizeWeights {
  int first = 0;
  std::vector<float> weights;
};

/// Maps `extent` inputs from `begin` to `out` outputs; the weights of each sum to 1.
[[nodiscard]] inline std::vector<ResizeWeights> resize_weights(int begin, int extent, int out) {
  const double scale = static_cast<double>(extent) / out;
  const double radius = std::max(scale, 1.0);
  std::vector<ResizeWeights> made(static_cast<std::size_t>(out));
  for (int place = 0; place < out; ++place) {
    const double centre = (place + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(centre - radius)));
    const int last = std::min(extent, static_cast<int>(std::ceil(centre + radius)));
    auto& [start, weights] = made[static_cast<std::size_t>(place)];
    start = begin + first;
    double sum = 0;
    for (int from = first; from < last; ++from) {
      const double weight = std::max(0.0, 1 - std::abs(from + 0.5 - centre) / radius);
      weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (auto& weight : weights) weight = static_cast<float>(weight / sum);
  }
  return made;
}

/// Resizes the part `box`, which must lie inside the image.
[[nodiscard]] inline Image resize(const Image& image, const Box& box, int height, int width) {
  check(height > 0 && width > 0, "resize: to ", height, " x ", width);
  check(box.height > 0 && box.width > 0 && box.top >= 0 && box.left >= 0 &&
            box.top + box.height <= image.height && box.left + box.width <= image.width,
        "resize: the box does not lie inside the image of ", image.height, " x ", image.width);
  if (box.height == height && box.width == width) return crop(image, box);
  const auto rows = resize_weights(box.top, box.height, height);
  const auto columns = resize_weights(box.left, box.width, width);
  const int channels = image.channels;

  // Columns first, only for the rows of the box: [box.height, width, C].
  std::vector<float> narrow;
  narrow.reserve(static_cast<std::size_t>(box.height) * static_cast<std::size_t>(width * channels));
  for (int y = box.top; y < box.top + box.height; ++y)
    for (const auto& [first, weights] : columns)
      for (int c = 0; c < channels; ++c) {
        const auto* from = image.pixels.data() + image.at(y, first) + c;
        float sum = 0;
        for (std::size_t tap = 0; tap < weights.size(); ++tap)
          sum += weights[tap] * static_cast<float>(from[tap * static_cast<std::size_t>(channels)]);
        narrow.push_back(sum);
      }

  Image made = Image::blank(height, width, channels);
  const auto stride = static_cast<std::size_t>(width * channels);
  std::vector<float> row(stride);
  for (int y = 0; y < height; ++y) {
    const auto& [first, weights] = rows[static_cast<std::size_t>(y)];
    std::fill(row.begin(), row.end(), 0.0F);
    for (std::size_t tap = 0; tap < weights.size(); ++tap) {
      const auto* from = narrow.data() + (static_cast<std::size_t>(first - box.top) + tap) * stride;
      for (std::size_t at = 0; at < stride; ++at) row[at] += weights[tap] * from[at];
    }
    for (std::size_t at = 0; at < stride; ++at)
      made.pixels[made.at(y, 0) + at] =
          static_cast<std::uint8_t>(std::clamp(row[at] + 0.5F, 0.0F, 255.0F));
  }
  return made;
}

}  // namespace dhp
