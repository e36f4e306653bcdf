// PNG via libpng's simplified interface (link PNG::PNG), which handles its errors internally. All
// color types and depths become 8-bit RGB or gray; transparent parts become black.
#pragma once

#include <dhp/data/decoder.hpp>

#include <png.h>

#include <string_view>

namespace dhp {

/// Checks all chunks: libpng stops once the pixels are complete and would accept a truncated file.
inline void check_png_chunks(std::span<const std::byte> bytes, const std::string& name) {
  ByteCursor at(bytes, name);
  const auto magic = at.take(8, "the PNG magic");
  if (png_sig_cmp(reinterpret_cast<png_const_bytep>(magic.data()), 0, 8) != 0)
    at.wrong("not a PNG file: wrong magic");
  for (;;) {
    const auto size = static_cast<std::size_t>(at.big_endian(4, "a PNG chunk"));
    const auto type = at.take(4, "a PNG chunk");
    (void)at.take(size, "a PNG chunk");
    (void)at.take(4, "the check sum of a PNG chunk");
    if (std::string_view(reinterpret_cast<const char*>(type.data()), 4) == "IEND") return;
  }
}

[[nodiscard]] inline Image decode_png(std::span<const std::byte> bytes, const std::string& name,
                                      const DecodeOptions& options = {}) {
  check_png_chunks(bytes, name);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  struct Freer {
    png_image* header;
    ~Freer() { png_image_free(header); }
  } const freer{&header};
  check(png_image_begin_read_from_memory(&header, bytes.data(), bytes.size()) != 0, "", name,
        ": damaged PNG (", header.message, ")");
  check_decode(header.height, header.width, name, options);
  header.format = options.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  header.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;

  Image made = Image::blank(static_cast<int>(header.height), static_cast<int>(header.width),
                            options.channels);
  const png_color black{0, 0, 0};
  check(png_image_finish_read(&header, &black, made.pixels.data(), 0, nullptr) != 0, "", name,
        ": damaged PNG (", header.message, ")");
  return made;
}

[[nodiscard]] inline Decoder png_decoder() { return {{".png"}, &decode_png, "\x89PNG"}; }

}  // namespace dhp
