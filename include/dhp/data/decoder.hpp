// Image decoders as values: a folder reader takes a list of them, one per linked library
// (png_decoder() of data/png.hpp, jpeg_decoder() of data/jpeg.hpp, or your own).
#pragma once

#include <dhp/data/image.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dhp {

struct DecodeOptions {
  int channels = 3;  ///< of the output: 1 or 3
  // a larger image is an error, before decoding
  std::int64_t pixel_limit = std::int64_t{1} << 26;
};

/// Decodes the bytes of a file; errors start with the file's `name`.
using Decode = Image (*)(std::span<const std::byte> bytes, const std::string& name,
                         const DecodeOptions& options);

struct Decoder {
  std::vector<std::string> extensions;  ///< lower case, with the dot
  Decode decode = nullptr;
};

inline void check_decode(std::uint64_t height, std::uint64_t width, const std::string& name,
                         const DecodeOptions& options) {
  check(options.channels == 1 || options.channels == 3,
        "images are decoded to 1 or 3 channels, not ", options.channels);
  check(height > 0 && width > 0, "", name, ": an image of ", height, " x ", width);
  const auto limit = static_cast<std::uint64_t>(options.pixel_limit);
  check(height <= limit && width <= limit / height, "", name, ": an image of ", height, " x ",
        width, " is above the limit of ", limit, " pixels");
}

}  // namespace dhp
