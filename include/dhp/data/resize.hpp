// Crop, mirror and resize. Resizing is bilinear and antialiased like Pillow's BILINEAR: the
// triangle filter widens when the image shrinks.
#pragma once

#include <dhp/data/image.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace dhp {

namespace detail {

/// visit(channels), with three as a constant so that pixel copies are unrolled.
void visit_channels(int channels, const auto& visit) {
  if (channels == 3) visit(std::integral_constant<std::size_t, 3>{});
  else visit(as_size(channels));
}

/// A rectangle of an image, in pixels.
struct Box {
  int top = 0, left = 0, height = 0, width = 0;
};
}  // namespace detail

/// Crops; parts of the box outside the image are black.
[[nodiscard]] inline Image crop(const Image& image, const detail::Box& box) {
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
  detail::visit_channels(image.channels, [&](auto channels) {
    for (int y = 0; y < image.height; ++y) {
      const auto* from = image.pixels.data() + image.at(y, 0);
      for (auto* to = made.pixels.data() + made.at(y + 1, 0);
           to != made.pixels.data() + made.at(y, 0); from += channels) {
        to -= channels;
        for (std::size_t c = 0; c < channels; ++c) to[c] = from[c];
      }
    }
  });
  return made;
}

namespace detail {
/// The weights of one output position along one axis: inputs first, first + 1, ...
struct ResizeWeights {
  int first = 0;
  std::vector<float> weights;
};

/// Maps `extent` inputs from `begin` to `out` outputs; the weights of each sum to 1.
[[nodiscard]] inline std::vector<ResizeWeights> resize_weights(int begin, int extent, int out) {
  const double scale = static_cast<double>(extent) / out;
  const double radius = std::max(scale, 1.0);
  std::vector<ResizeWeights> made(as_size(out));
  for (int place = 0; place < out; ++place) {
    const double centre = (place + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(centre - radius)));
    const int last = std::min(extent, static_cast<int>(std::ceil(centre + radius)));
    auto& [start, weights] = made[as_size(place)];
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

// Vector extensions of GCC and Clang, which do not vectorize such loops at -O2.
inline constexpr std::size_t lanes = 8;
using Floats = float __attribute__((vector_size(4 * lanes)));
using Ints = int __attribute__((vector_size(4 * lanes)));
using Shorts = short __attribute__((vector_size(2 * lanes)));
using Pixels = std::uint8_t __attribute__((vector_size(lanes)));

/// made[at] = the sum of weights[tap] * from[tap * stride + at]
inline void sum_rows(const std::uint8_t* from, std::size_t stride,
                     const std::vector<float>& weights, std::span<float> made) {
  std::size_t at = 0;
  for (; at + lanes <= made.size(); at += lanes) {
    Floats sum{};
    for (std::size_t tap = 0; tap < weights.size(); ++tap) {
      Pixels pixels;
      std::memcpy(&pixels, from + tap * stride + at, sizeof pixels);
      // g++ 12 would not vectorize this in one step.
      const auto wide = __builtin_convertvector(__builtin_convertvector(pixels, Shorts), Ints);
      sum += weights[tap] * __builtin_convertvector(wide, Floats);
    }
    std::memcpy(made.data() + at, &sum, sizeof sum);
  }
  for (; at < made.size(); ++at) {
    made[at] = 0;
    for (std::size_t tap = 0; tap < weights.size(); ++tap)
      made[at] += weights[tap] * static_cast<float>(from[tap * stride + at]);
  }
}

/// to[c] = the sum of weights[tap] * from[tap * channels + c], rounded. Reads up to `lanes` values beyond.
void sum_columns(const float* from, auto channels, const std::vector<float>& weights,
                 std::uint8_t* to) {
  constexpr std::size_t few = 4;
  using Few = float __attribute__((vector_size(4 * few)));
  using FewInts = int __attribute__((vector_size(4 * few)));
  for (std::size_t first = 0; first < channels; first += few) {
    Few sum{};
    for (std::size_t tap = 0; tap < weights.size(); ++tap) {
      Few values;
      std::memcpy(&values, from + tap * channels + first, sizeof values);
      sum += weights[tap] * values;
    }
    // Weights that sum to 1 leave pixels in [0, 255].
    const auto rounded = __builtin_convertvector(sum + 0.5F, FewInts);
    for (std::size_t c = first; c < std::min<std::size_t>(channels, first + few); ++c)
      to[c] = static_cast<std::uint8_t>(rounded[c - first]);
  }
}

}  // namespace detail

/// Resizes the part `box`, which must lie inside the image.
[[nodiscard]] inline Image resize(const Image& image, const detail::Box& box, int height,
                                  int width) {
  check(height > 0 && width > 0, "resize: to ", height, " x ", width);
  check(box.height > 0 && box.width > 0 && box.top >= 0 && box.left >= 0 &&
            box.top + box.height <= image.height && box.left + box.width <= image.width,
        "resize: the box does not lie inside the image of ", image.height, " x ", image.width);
  if (box.height == height && box.width == width) return crop(image, box);
  const auto rows = detail::resize_weights(box.top, box.height, height);
  const auto columns = detail::resize_weights(0, box.width, width);
  const auto channels = detail::as_size(image.channels);
  Image made = Image::blank(height, width, image.channels);
  std::vector<float> row(channels * detail::as_size(box.width) + detail::lanes);
  for (int y = 0; y < height; ++y) {
    const auto& [first, weights] = rows[detail::as_size(y)];
    detail::sum_rows(image.pixels.data() + image.at(first, box.left), image.at(1, 0), weights,
                     std::span(row).first(row.size() - detail::lanes));
    detail::visit_channels(image.channels, [&](auto count) {
      auto* to = made.pixels.data() + made.at(y, 0);
      for (const auto& [left, taps] : columns) {
        detail::sum_columns(row.data() + count * detail::as_size(left), count, taps, to);
        to += count;
      }
    });
  }
  return made;
}

}  // namespace dhp
