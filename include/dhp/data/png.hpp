// Decodes PNG with libpng's simplified interface (link PNG::PNG), which handles libpng's errors internally. All color
// types and depths become 8-bit RGB or gray. Like torchvision, it drops transparency and ignores gamma and color
// profiles.
#pragma once

#include <dhp/data/exif.hpp>

#include <png.h>

namespace dhp {

namespace detail {
/// A PNG without the chunks that would change its pixels.
struct PlainPng {
  Bytes bytes;
  int orientation = 1;
};

/// Reads all chunks, because libpng stops once the pixels are complete and would accept a truncated file.
[[nodiscard]] inline PlainPng plain_png(std::span<const std::byte> bytes, const std::string& name) {
  ByteCursor at(bytes, name);
  const auto magic = at.take(8, "the PNG magic");
  if (png_sig_cmp(reinterpret_cast<png_const_bytep>(magic.data()), 0, 8) != 0)
    at.wrong("not a PNG file: wrong magic");
  PlainPng made{.bytes = Bytes(magic.begin(), magic.end())};
  made.bytes.reserve(bytes.size());
  for (;;) {
    const auto* first = bytes.data() + (bytes.size() - at.left());
    const auto size = as_size(at.big_endian(4, "a PNG chunk"));
    const auto kind = text_in(at.take(4, "a PNG chunk"));
    const auto data = at.take(size, "a PNG chunk");
    (void)at.take(4, "the check sum of a PNG chunk");
    if (kind == "eXIf") made.orientation = exif_orientation(data);
    if (kind != "gAMA" && kind != "cHRM" && kind != "sRGB" && kind != "iCCP" && kind != "tRNS")
      made.bytes.insert(made.bytes.end(), first, data.data() + data.size() + 4);
    if (kind == "IEND") return made;
  }
}

[[nodiscard]] inline Image decode_png(std::span<const std::byte> bytes, const std::string& name,
                                      const DecodeOptions& options = {}) {
  const auto plain = plain_png(bytes, name);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  struct Freer {
    png_image* header;
    ~Freer() { png_image_free(header); }
  } const freer{&header};
  check(png_image_begin_read_from_memory(&header, plain.bytes.data(), plain.bytes.size()) != 0, "",
        name, ": damaged PNG (", header.message, ")");
  check_decode(header.height, header.width, name, options);
  const int alpha = (header.format & PNG_FORMAT_FLAG_ALPHA) != 0 ? 1 : 0;
  // libpng would compute gray in linear light, unlike other readers.
  const bool mixes = options.channels == 1 && (header.format & PNG_FORMAT_FLAG_COLOR) != 0;
  const int channels = mixes ? 3 : options.channels;
  header.format =
      (channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY) | (alpha != 0 ? PNG_FORMAT_FLAG_ALPHA : 0);
  header.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;

  Image made = Image::blank(static_cast<int>(header.height), static_cast<int>(header.width),
                            channels + alpha);
  check(png_image_finish_read(&header, nullptr, made.pixels.data(), 0, nullptr) != 0, name,
        ": damaged PNG (", header.message, ")");
  if (alpha != 0 || mixes) {  // leaves out the transparency, or makes three colors one gray
    auto* to = made.pixels.data();
    for (const auto* from = to; from != made.pixels.data() + made.pixels.size();
         from += channels + alpha)
      if (mixes) *to++ = gray_of(from[0], from[1], from[2]);
      else to = std::copy_n(from, channels, to);
    made.channels = options.channels;
    made.pixels.resize(made.at(made.height, 0));
  }
  return oriented(std::move(made), plain.orientation, options);
}
}  // namespace detail

[[nodiscard]] inline Decoder png_decoder() { return {{".png"}, &detail::decode_png, "\x89PNG"}; }

}  // namespace dhp
