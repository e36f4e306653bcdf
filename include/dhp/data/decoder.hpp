// Image decoders, shared by all image readers, and the choice of a decoder for a file.
#pragma once

#include <dhp/data/file.hpp>
#include <dhp/data/image.hpp>
#include <dhp/data/known_file.hpp>
#include <dhp/device/thread_pool.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

struct DecodeOptions {
  int channels = 3;  ///< channels of the output: 1 or 3
  /// An image with more pixels is an error; no memory is allocated for it. It is Pillow's limit: 2^29 bytes of RGB.
  std::int64_t pixel_limit = 178'956'970;
  /// JPEGs may be decoded at 1/2, 1/4 or 1/8 size, which is faster, if both sides keep this many pixels; 0: full size.
  int min_side = 0;
  /// Applies the EXIF orientation. If false, images stay as stored, and `turned` (may be null) counts rotated ones.
  bool exif = false;
  std::shared_ptr<std::atomic<std::int64_t>> turned = {};
  /// Returns the wanted part of an image. A decoder that supports this decodes only that part, which is faster.
  detail::PartOf part = {};
};

/// An image format: png_decoder() of data/png.hpp, jpeg_decoder() of data/jpeg.hpp, or your own.
struct Decoder {
  std::vector<std::string> extensions;  ///< lower case, with the dot: ".png"
  /// Decodes the bytes of a file; errors start with the file's `name`.
  Image (*decode)(std::span<const std::byte> bytes, const std::string& name,
                  const DecodeOptions& options) = nullptr;
  std::string magic = {};  ///< first bytes of the format's files; empty: known only by extension
};

namespace detail {
inline void check_decode(std::uint64_t height, std::uint64_t width, const std::string& name,
                         const DecodeOptions& options) {
  check(options.channels == 1 || options.channels == 3,
        "images are decoded to 1 or 3 channels, not ", options.channels);
  check(height > 0 && width > 0, name, ": an image of ", height, " x ", width);
  const auto limit = static_cast<std::uint64_t>(options.pixel_limit);
  check(height <= limit && width <= limit / height, name, ": an image of ", height, " x ", width,
        " is above the limit of ", limit, " pixels");
}

/// Makes colors gray by the weights of ITU-R BT.601, in units of 1/2^16 as in Pillow.
inline void make_gray(Image& image) {
  auto* to = image.pixels.data();
  for (const auto* from = to; from != image.pixels.data() + image.pixels.size(); from += 3)
    *to++ = static_cast<std::uint8_t>(
        (19595 * from[0] + 38470 * from[1] + 7471 * from[2] + (1 << 15)) >> 16);
  image.channels = 1;
  image.pixels.resize(image.at(image.height, 0));
}

/// Returns the decoder for a file's extension in any case, such as ".JPG"; null if there is none.
[[nodiscard]] inline const Decoder* decoder_for(std::span<const Decoder> decoders,
                                                std::string extension) {
  extension = lower_case(std::move(extension));
  for (const auto& decoder : decoders)
    for (const auto& known : decoder.extensions)
      if (known == extension) return &decoder;
  return nullptr;
}

/// Returns the extensions of all decoders, for errors.
[[nodiscard]] inline std::string formats_of(std::span<const Decoder> decoders) {
  std::string formats;
  for (const auto& decoder : decoders)
    for (const auto& extension : decoder.extensions)
      formats += (formats.empty() ? "" : " ") + extension;
  return formats;
}

/// Chooses the decoder by the first bytes (ImageNet has a PNG named like a JPEG), or else by the extension of `name`.
[[nodiscard]] inline Image decode_image(std::span<const Decoder> decoders,
                                        std::span<const std::byte> bytes, const std::string& name,
                                        const DecodeOptions& options) {
  const auto text = text_in(bytes);
  for (const auto& decoder : decoders)
    if (!decoder.magic.empty() && text.starts_with(decoder.magic))
      return decoder.decode(bytes, name, options);
  const auto known = known_file(text.substr(0, 64));
  check(known.empty(), name, ": is ", known, "; this program reads ", formats_of(decoders));
  check(text.find_first_not_of('\0') != text.npos, name,
        text.empty() ? ": is empty" : ": holds nothing but zero bytes");
  const auto* named = decoder_for(decoders, std::filesystem::path(name).extension().string());
  check(named != nullptr, name, ": no image; this program reads ", formats_of(decoders));
  return named->decode(bytes, name, options);
}

/// Calls read(item) for all items, on several threads. Removes those for which it throws Error, and passes each error's
/// sentence to bad().
template <class T>
void keep_good(std::vector<T>& items, int threads, const auto& read, const auto& bad) {
  std::vector<std::string> wrong(items.size());
  ThreadPool pool(std::max(1, threads));
  pool.run(std::ssize(items), [&](std::int64_t at) {
    try {
      read(items[as_size(at)]);
    } catch (const Error& error) {
      wrong[as_size(at)] = error.sentence();
    }
  });
  std::vector<T> good;
  for (std::size_t at = 0; at < wrong.size(); ++at)
    if (wrong[at].empty()) good.push_back(std::move(items[at]));
    else bad(std::move(wrong[at]));
  items = std::move(good);
}
}  // namespace detail

/// Decodes a file. Throws Error if no decoder fits or the file is damaged.
[[nodiscard]] inline Image read_image(const std::string& path, std::span<const Decoder> decoders,
                                      const DecodeOptions& options = {}) {
  constexpr std::size_t limit_bytes = std::size_t{1} << 30;
  return detail::decode_image(decoders, read_file(path, limit_bytes), path, options);
}

}  // namespace dhp
