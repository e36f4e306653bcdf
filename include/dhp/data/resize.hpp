// Crops, mirrors and resizes images. Resizing is bilinear and antialiased like Pillow's BILINEAR: the triangle filter
// widens when the image shrinks.
#pragma once

#include <dhp/data/image.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace dhp {

namespace detail {

/// Calls visit(channels). Three channels are passed as a compile-time constant, which unrolls pixel copies.
void visit_channels(int channels, const auto& visit) {
  if (channels == 3) visit(std::integral_constant<std::size_t, 3>{});
  else visit(as_size(channels));
}

}  // namespace detail

/// Crops; parts of the box outside the image are black.
[[nodiscard]] inline Image crop(const Image& image, const detail::Box& box) {
  check(box.height > 0 && box.width > 0, "crop: a box of ", box.height, " x ", box.width);
  Image result = Image::blank(box.height, box.width, image.channels);
  const int first = std::max(0, -box.left);
  const int last = std::min(box.width, image.width - box.left);
  if (first >= last) return result;
  for (int y = 0; y < box.height; ++y) {
    const int from = y + box.top;
    if (from < 0 || from >= image.height) continue;
    std::copy_n(image.pixels.data() + image.at(from, box.left + first),
                (last - first) * image.channels, result.pixels.data() + result.at(y, first));
  }
  return result;
}

/// Flips an image horizontally.
[[nodiscard]] inline Image mirror(const Image& image) {
  Image result = Image::blank(image.height, image.width, image.channels);
  detail::visit_channels(image.channels, [&](auto channels) {
    for (int y = 0; y < image.height; ++y) {
      const auto* from = image.pixels.data() + image.at(y, 0);
      for (auto* to = result.pixels.data() + result.at(y + 1, 0);
           to != result.pixels.data() + result.at(y, 0); from += channels) {
        to -= channels;
        for (std::size_t c = 0; c < channels; ++c) to[c] = from[c];
      }
    }
  });
  return result;
}

namespace detail {
/// One axis of a resized image: the inputs from `begin` become `whole` outputs, of which only some are made.
struct ResizeAxis {
  int begin = 0, inputs = 1;
  std::int64_t whole = 1, skipped = 0;
  int outputs = 1;

  [[nodiscard]] double scale() const { return inputs / static_cast<double>(whole); }
};

/// The weights along one axis: output `place` is the sum of the inputs first[place], first[place] + 1, ..., each times
/// one of its `taps` weights.
struct ResizeWeights {
  std::size_t taps = 0;
  std::vector<int> first;
  std::vector<std::int16_t> values;  ///< [outputs, taps]; the weights of an output sum to `one`

  /// even: makes the number of taps even by one more tap of weight 0.
  ResizeWeights(const ResizeAxis& axis, int one, bool even) {
    const double radius = std::max(axis.scale(), 1.0);
    const int reach = std::min(axis.inputs, static_cast<int>(std::ceil(2 * radius)));
    taps = as_size(even ? reach + reach % 2 : reach);
    values.resize(taps * as_size(axis.outputs));
    std::vector<double> sums(as_size(reach));
    for (int place = 0; place < axis.outputs; ++place) {
      const double center = (static_cast<double>(axis.skipped + place) + 0.5) * axis.scale();
      const int start =
          std::clamp(static_cast<int>(std::floor(center - radius + 0.5)), 0, axis.inputs - reach);
      double sum = 0;
      for (int tap = 0; tap < reach; ++tap)
        sums[as_size(tap)] = sum +=
            std::max(0.0, 1 - std::abs(start + tap + 0.5 - center) / radius);
      auto* weight = values.data() + taps * as_size(place);
      int given = 0;  // rounded sum of the weights so far: all weights add up to `one`
      for (const double so_far : sums) {
        const int wanted = static_cast<int>(so_far / sum * one + 0.5);
        *weight++ = static_cast<std::int16_t>(wanted - given);
        given = wanted;
      }
      first.push_back(axis.begin + start);
    }
  }
  void reverse() {
    std::reverse(first.begin(), first.end());
    std::reverse(values.begin(), values.end());
    for (std::size_t at = 0; at < values.size(); at += taps)
      std::reverse(values.data() + at, values.data() + at + taps);
  }
};

// Column weights are in units of 1/2^14. Row weights are in units of 1/256, so that sums fit in 16 bits; for more than
// most_coarse_taps taps this is too coarse, and they are in units of 1/2^14, too.
inline constexpr int row_weight_bits = 8, column_weight_bits = 14, most_coarse_taps = 8;
/// Row sums are stored minus this value, because SSE2 multiplies signed 16-bit values.
inline constexpr int sum_middle = 1 << 15;

/// Sets sums[at] to the sum of weights[tap] * from[tap * stride + at], minus sum_middle. constant: the number of taps,
/// or 0 if it is known only at run time. shift: by how many bits weights are finer than row_weight_bits. SSE2 adds 16
/// sums of coarse weights at a time; the results are the same without it.
void sum_rows(auto constant, int shift, const std::uint8_t* from, std::size_t stride,
              std::span<const std::int16_t> weights, std::span<std::int16_t> sums) {
  const std::size_t taps = constant > 0 ? constant : weights.size();
  std::size_t at = 0;
#ifdef __SSE2__
  const __m128i zero = _mm_setzero_si128();
  for (; shift == 0 && at + 16 <= sums.size(); at += 16) {
    __m128i low = _mm_set1_epi16(static_cast<short>(sum_middle)), high = low;
    for (std::size_t tap = 0; tap < taps; ++tap) {
      __m128i pixels;
      std::memcpy(&pixels, from + tap * stride + at, sizeof pixels);
      const __m128i by = _mm_set1_epi16(weights[tap]);
      low = _mm_add_epi16(low, _mm_mullo_epi16(_mm_unpacklo_epi8(pixels, zero), by));
      high = _mm_add_epi16(high, _mm_mullo_epi16(_mm_unpackhi_epi8(pixels, zero), by));
    }
    std::memcpy(&sums[at], &low, sizeof low);
    std::memcpy(&sums[at + 8], &high, sizeof high);
  }
#endif
  constexpr std::size_t together = 32;  // as vectors
  const auto sum_some = [&](auto count) {
    std::array<int, together> sum;
    sum.fill((1 << shift) / 2);
    for (std::size_t tap = 0; tap < taps; ++tap)
      for (std::size_t lane = 0; lane < count; ++lane)
        sum[lane] += weights[tap] * from[tap * stride + at + lane];
    for (std::size_t lane = 0; lane < count; ++lane)
      sums[at + lane] = static_cast<std::int16_t>((sum[lane] >> shift) - sum_middle);
  };
  for (; at + together <= sums.size(); at += together)
    sum_some(std::integral_constant<std::size_t, together>{});
  if (at < sums.size()) sum_some(sums.size() - at);
}

/// Sums columns into one row of the result. Reads up to 8 values past the end of `sums`; writes up to 4 past `to`.
void sum_columns(auto constant, const std::int16_t* sums, std::size_t channels,
                 const ResizeWeights& columns, std::uint8_t* to) {
  constexpr int shift = column_weight_bits + 8;
  constexpr int start = (sum_middle << column_weight_bits) + (1 << (shift - 1));
  const std::size_t taps = constant > 0 ? constant : columns.taps;
  const auto* weights = columns.values.data();
  for (const int first : columns.first) {
    const auto* from = sums + as_size(first) * channels;
    for (std::size_t c = 0; c < channels; c += 4) {
#ifdef __SSE2__
      __m128i sum = _mm_set1_epi32(start);
      for (std::size_t tap = 0; tap < taps; tap += 2) {
        const auto four = [&](std::size_t at) {
          __m128i values = _mm_setzero_si128();
          std::memcpy(&values, from + at * channels + c, 8);
          return values;
        };
        int pair = 0;
        std::memcpy(&pair, weights + tap, sizeof pair);
        sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_unpacklo_epi16(four(tap), four(tap + 1)),
                                                _mm_set1_epi32(pair)));
      }
      sum = _mm_packs_epi32(_mm_srai_epi32(sum, shift), sum);
      const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
      std::memcpy(to + c, &bytes, sizeof bytes);
#else
      for (std::size_t lane = c; lane < std::min(c + 4, channels); ++lane) {
        int sum = start;
        for (std::size_t tap = 0; tap < taps; ++tap)
          sum += weights[tap] * from[tap * channels + lane];
        to[lane] = static_cast<std::uint8_t>(sum >> shift);
      }
#endif
    }
    weights += taps;
    to += channels;
  }
}

/// Calls visit with the number of taps as a compile-time constant (2 to 4), or with 0.
void visit_taps(std::size_t taps, const auto& visit) {
  if (taps == 2) visit(std::integral_constant<std::size_t, 2>{});
  else if (taps == 3) visit(std::integral_constant<std::size_t, 3>{});
  else if (taps == 4) visit(std::integral_constant<std::size_t, 4>{});
  else visit(std::integral_constant<std::size_t, 0>{});
}

/// Resizes along both axes. Flips horizontally if `mirrored`.
[[nodiscard]] inline Image resample(const Image& image, const ResizeAxis& height,
                                    const ResizeAxis& width, bool mirrored = false) {
  const bool many_taps = 2 * height.scale() > most_coarse_taps;
  const int shift = many_taps ? column_weight_bits - row_weight_bits : 0;
  const ResizeWeights rows(height, 1 << (row_weight_bits + shift), false);
  ResizeWeights columns(width, 1 << column_weight_bits, true);
  const int left = columns.first.front();  // only the columns that have a weight are summed
  const int right =
      std::min(width.begin + width.inputs, columns.first.back() + static_cast<int>(columns.taps));
  for (auto& first : columns.first) first -= left;
  if (mirrored) columns.reverse();
  const auto channels = as_size(image.channels);
  Image result = Image::blank(height.outputs, width.outputs, image.channels);
  constexpr std::size_t beyond = 8;
  const auto count = channels * as_size(right - left);
  std::vector<std::int16_t> sums(count + channels + beyond);
  std::vector<std::uint8_t> line(result.at(1, 0) + beyond);
  for (int y = 0; y < height.outputs; ++y) {
    const auto at = as_size(y);
    const auto* from = image.pixels.data() + image.at(rows.first[at], left);
    visit_taps(rows.taps, [&](auto taps) {
      sum_rows(taps, shift, from, image.at(1, 0),
               std::span(rows.values).subspan(at * rows.taps, rows.taps),
               std::span(sums).first(count));
    });
    visit_taps(columns.taps,
               [&](auto taps) { sum_columns(taps, sums.data(), channels, columns, line.data()); });
    std::memcpy(result.pixels.data() + result.at(y, 0), line.data(), result.at(1, 0));
  }
  return result;
}
}  // namespace detail

/// Resizes the part `box`, which must lie inside the image. Flips it horizontally if `mirrored`.
[[nodiscard]] inline Image resize(const Image& image, const detail::Box& box, int height, int width,
                                  bool mirrored = false) {
  check(height > 0 && width > 0, "resize: to ", height, " x ", width);
  check(box.height > 0 && box.width > 0 && box.top >= 0 && box.left >= 0 &&
            box.top + box.height <= image.height && box.left + box.width <= image.width,
        "resize: the box does not lie inside the image of ", image.height, " x ", image.width);
  if (box.height == height && box.width == width)
    return mirrored ? mirror(crop(image, box)) : crop(image, box);
  return detail::resample(image, {box.top, box.height, height, 0, height},
                          {box.left, box.width, width, 0, width}, mirrored);
}

}  // namespace dhp
