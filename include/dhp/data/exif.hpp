// Reads and applies an image's EXIF orientation: cameras store the sensor's pixels, and how to rotate them.
#pragma once

#include <dhp/data/decoder.hpp>

#include <utility>

namespace dhp::detail {
/// Returns the orientation in an EXIF TIFF block, 1 to 8; 1 (upright) if it is missing or damaged.
[[nodiscard]] inline int exif_orientation(std::span<const std::byte> tiff) {
  const bool little = tiff.size() > 8 && tiff[0] == std::byte{'I'};
  const auto number = [&](std::uint64_t at, std::size_t count) -> std::uint64_t {
    if (at + count > tiff.size()) return 0;
    ByteCursor cursor(tiff.subspan(as_size(at), count), {});
    return little ? cursor.little_endian(count, "") : cursor.big_endian(count, "");
  };
  if (number(2, 2) != 42) return 1;
  const auto first = number(4, 4);
  const auto entries = number(first, 2);
  for (std::uint64_t entry = 0; entry < entries; ++entry) {
    const auto at = first + 2 + 12 * entry;
    if (number(at, 2) != 0x0112) continue;
    const auto found = static_cast<int>(number(at + 8, 2));
    return found >= 1 && found <= 8 ? found : 1;
  }
  return 1;
}

/// Returns the orientation of a JPEG, 1 to 8; 1 (upright) if it is missing or damaged.
[[nodiscard]] inline int jpeg_orientation(std::span<const std::byte> bytes) {
  constexpr std::string_view exif("Exif\0\0", 6);
  for (std::size_t at = 2; at + 4 <= bytes.size() && bytes[at] == std::byte{0xff};) {
    const auto marker = std::to_integer<unsigned>(bytes[at + 1]);
    if (marker == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    const auto size = std::to_integer<std::size_t>(bytes[at + 2]) * 256 +
                      std::to_integer<std::size_t>(bytes[at + 3]);
    if (marker == 0xda || at + 2 + size > bytes.size()) break;  // the image's data begins
    const auto part = bytes.subspan(at + 4, size < 2 ? 0 : size - 2);
    if (marker == 0xe1 && part.size() > exif.size() && text_in(part).starts_with(exif))
      return exif_orientation(part.subspan(exif.size()));
    at += 2 + size;
  }
  return 1;
}

/// Rotates and mirrors the image if options.exif is set. Otherwise counts the image and returns it unchanged.
[[nodiscard]] inline Image oriented(Image image, int orientation, const DecodeOptions& options) {
  if (orientation == 1) return image;
  if (!options.exif) {
    if (options.turned != nullptr) options.turned->fetch_add(1, std::memory_order_relaxed);
    return image;
  }
  const bool swaps = orientation >= 5;
  const bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool left = orientation == 2 || orientation == 3 || orientation >= 7;
  auto result = Image::blank(swaps ? image.width : image.height, swaps ? image.height : image.width,
                             image.channels);
  for (int y = 0; y < result.height; ++y)
    for (int x = 0; x < result.width; ++x) {
      const auto [row, column] = swaps ? std::pair(x, y) : std::pair(y, x);
      const auto* from = &image.pixels[image.at(up ? image.height - 1 - row : row,
                                                left ? image.width - 1 - column : column)];
      std::copy_n(from, image.channels, &result.pixels[result.at(y, x)]);
    }
  return result;
}
}  // namespace dhp::detail
