// The image formats and packed-file formats that this program was built with.
#pragma once

#include <dhp/data/decoder.hpp>
#ifdef DHP_HAS_ZLIB
#include <dhp/data/gzip.hpp>
#endif
#ifdef DHP_HAS_PNG
#include <dhp/data/png.hpp>
#endif
#ifdef DHP_HAS_JPEG
#include <dhp/data/jpeg.hpp>
#endif

#include <vector>

namespace examples {

inline constexpr auto without_utf8proc =
    "this program was built without utf8proc, which text needs (Debian: libutf8proc-dev)";

[[nodiscard]] inline dhp::detail::Unpack unpacker() {
#ifdef DHP_HAS_ZLIB
  return &dhp::gunzip;
#else
  return nullptr;
#endif
}

[[nodiscard]] inline std::vector<dhp::Decoder> decoders() {
  std::vector<dhp::Decoder> list;
#ifdef DHP_HAS_PNG
  list.push_back(dhp::png_decoder());
#endif
#ifdef DHP_HAS_JPEG
  list.push_back(dhp::jpeg_decoder());
#endif
  return list;
}

/// Returns options for images that are resized to `size` afterwards: very large ones are decoded at a smaller scale.
[[nodiscard]] inline dhp::DecodeOptions decoding_for(int size) {
  return {.min_side = size * 3 / 2};
}

}  // namespace examples
