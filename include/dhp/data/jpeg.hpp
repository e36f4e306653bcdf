// JPEG via TurboJPEG (Debian: libturbojpeg0-dev). All JPEGs become 8-bit RGB or gray.
#pragma once

#include <dhp/data/exif.hpp>

#include <turbojpeg.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace dhp {

namespace detail {

/// Inverted CMYK, as all known writers store it, to RGB or gray.
[[nodiscard]] inline Image from_inverted_cmyk(const Image& inks, int channels) {
  Image made = Image::blank(inks.height, inks.width, channels);
  const auto count = as_size(inks.height) * as_size(inks.width);
  for (std::size_t at = 0; at < count; ++at) {
    const auto* ink = inks.pixels.data() + 4 * at;
    const int red = ink[0] * ink[3] / 255;
    const int green = ink[1] * ink[3] / 255;
    const int blue = ink[2] * ink[3] / 255;
    if (channels == 1) {  // ITU-R BT.601
      made.pixels[at] =
          static_cast<std::uint8_t>((299 * red + 587 * green + 114 * blue + 500) / 1000);
    } else {
      made.pixels[3 * at] = static_cast<std::uint8_t>(red);
      made.pixels[3 * at + 1] = static_cast<std::uint8_t>(green);
      made.pixels[3 * at + 2] = static_cast<std::uint8_t>(blue);
    }
  }
  return made;
}

/// Whether an end-of-image marker follows the last scan header; otherwise the file is truncated.
[[nodiscard]] inline bool jpeg_has_end(std::span<const std::byte> bytes) {
  const auto last = [&](std::byte marker) {
    const std::array wanted{std::byte{0xFF}, marker};
    return std::find_end(bytes.begin(), bytes.end(), wanted.begin(), wanted.end());
  };
  const auto end = last(std::byte{0xD9});
  return end != bytes.end() && end > last(std::byte{0xDA});
}

/// TurboJPEG fills missing parts with gray and only warns; here a damaged image is an error. It reports only the
/// first warning; warnings about complete but untidy files are accepted.
[[nodiscard]] inline bool harmless_jpeg_warning(tjhandle handle, std::span<const std::byte> bytes) {
  const std::string_view text = tjGetErrorStr2(handle);
  const bool untidy = text.find("extraneous bytes") != text.npos ||
                      text.find("Adobe color transform") != text.npos ||
                      text.find("JFIF revision") != text.npos;
  return tjGetErrorCode(handle) == TJERR_WARNING && untidy && jpeg_has_end(bytes);
}

[[nodiscard]] inline Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                                       const DecodeOptions& options = {}) {
  const std::unique_ptr<void, int (*)(tjhandle)> handle(tjInitDecompress(), &tjDestroy);
  check(handle != nullptr, name, ": TurboJPEG could not start");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size = static_cast<unsigned long>(bytes.size());
  const auto damaged = [&] { fail(name, ": damaged JPEG (", tjGetErrorStr2(handle.get()), ")"); };

  // It fails for rare chroma subsamplings that decompression accepts: check its outputs instead.
  int width = 0, height = 0, subsampling = 0, colors = -1;
  tjDecompressHeader3(handle.get(), data, size, &width, &height, &subsampling, &colors);
  if (width < 1 || height < 1 || colors < 0) damaged();
  check_decode(static_cast<std::uint64_t>(height), static_cast<std::uint64_t>(width), name,
               options);

  // The decoder drops the high frequencies of each block of 8 x 8 pixels.
  const int least = options.least_side;
  for (int half = 0; least > 0 && half < 3 && std::min(height, width) >= 2 * least; ++half) {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  const bool inks = colors == TJCS_CMYK || colors == TJCS_YCCK;
  Image made = Image::blank(height, width, inks ? 4 : options.channels);
  const int format = inks ? TJPF_CMYK : options.channels == 3 ? TJPF_RGB : TJPF_GRAY;
  // A small file can request thousands of passes over a large image.
  const int wrong = tjDecompress2(handle.get(), data, size, made.pixels.data(), width, 0, height,
                                  format, TJFLAG_LIMITSCANS);
  if (wrong != 0 && !harmless_jpeg_warning(handle.get(), bytes)) damaged();
  if (inks) made = from_inverted_cmyk(made, options.channels);
  return oriented(std::move(made), jpeg_orientation(bytes), options);
}
}  // namespace detail

[[nodiscard]] inline Decoder jpeg_decoder() {
  return {{".jpg", ".jpeg"}, &detail::decode_jpeg, "\xff\xd8"};
}

}  // namespace dhp
