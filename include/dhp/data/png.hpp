// Decodes PNG with libpng (link PNG::PNG). All color types and depths become 8-bit RGB or gray. Like torchvision, it
// drops transparency and ignores gamma and color profiles. libpng's simplified interface would be shorter, but some of
// its versions mix up the rows of interlaced files of 16 bits.
#pragma once

#include <dhp/data/exif.hpp>

#include <png.h>

#include <csetjmp>
#include <cstring>
#include <vector>

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
    at.reject("not a PNG file: wrong magic");
  PlainPng result{.bytes = Bytes(magic.begin(), magic.end())};
  result.bytes.reserve(bytes.size());
  for (;;) {
    const auto* first = bytes.data() + (bytes.size() - at.left());
    const auto size = as_size(at.big_endian(4, "a PNG chunk"));
    const auto kind = text_in(at.take(4, "a PNG chunk"));
    const auto data = at.take(size, "a PNG chunk");
    (void)at.take(4, "the check sum of a PNG chunk");
    if (kind == "eXIf") result.orientation = exif_orientation(data);
    if (kind != "gAMA" && kind != "cHRM" && kind != "sRGB" && kind != "iCCP" && kind != "tRNS")
      result.bytes.insert(result.bytes.end(), first, data.data() + data.size() + 4);
    if (kind == "IEND") return result;
  }
}

/// Reads one file through libpng. On an error, libpng jumps out of its C code by longjmp, which runs no destructors. So
/// code in attempt() must not make objects with destructors.
class PngReader : NonCopyable {
 public:
  PngReader(const Bytes& bytes, const std::string& name)
      : name_(name),
        rest_(bytes),
        png_(png_create_read_struct(
            PNG_LIBPNG_VER_STRING, this,
            [](png_structp png, png_const_charp problem) {
              auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
              std::strncpy(reader.problem_, problem, sizeof reader.problem_ - 1);
              std::longjmp(reader.before_, 1);
            },
            [](png_structp, png_const_charp) {})),
        info_(png_ != nullptr ? png_create_info_struct(png_) : nullptr) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  void attempt(const auto& step) {
    check(info_ != nullptr, name_, ": libpng cannot start, out of memory");
    if (setjmp(before_) != 0) fail(name_, ": damaged PNG (", problem_, ")");
    step(png_, info_);
  }
  void read_info() {
    attempt([this](png_structp png, png_infop info) {
      png_set_read_fn(png, this, [](png_structp from, png_bytep to, std::size_t count) {
        auto& rest = static_cast<PngReader*>(png_get_io_ptr(from))->rest_;
        if (count > rest.size()) png_error(from, "it is cut off");
        std::memcpy(to, rest.data(), count);
        rest = rest.subspan(count);
      });
      png_read_info(png, info);
    });
  }

 private:
  const std::string& name_;
  std::span<const std::byte> rest_;
  char problem_[200] = {};
  std::jmp_buf before_{};
  png_structp png_;
  png_infop info_;
};

[[nodiscard]] inline Image decode_png(std::span<const std::byte> bytes, const std::string& name,
                                      const DecodeOptions& options = {}) {
  const auto plain = plain_png(bytes, name);
  PngReader reader(plain.bytes, name);
  reader.read_info();
  Image result;
  bool color = false;
  reader.attempt([&](png_structp png, png_infop info) {
    result.height = static_cast<int>(png_get_image_height(png, info));
    result.width = static_cast<int>(png_get_image_width(png, info));
    color = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) != 0;
    png_set_expand(png);  // of palettes, and of grays with fewer than 8 bits
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    if (!color && options.channels == 3) png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  check_decode(as_size(result.height), as_size(result.width), name, options);
  result = Image::blank(result.height, result.width, color ? 3 : options.channels);
  std::vector<png_bytep> rows;
  for (int y = 0; y < result.height; ++y) rows.push_back(result.pixels.data() + result.at(y, 0));
  reader.attempt([&](png_structp png, png_infop) { png_read_image(png, rows.data()); });
  if (color && options.channels == 1) make_gray(result);
  return oriented(std::move(result), plain.orientation, options);
}
}  // namespace detail

[[nodiscard]] inline Decoder png_decoder() { return {{".png"}, &detail::decode_png, "\x89PNG"}; }

}  // namespace dhp
