// PNG: files written by libpng and read by dhp; damage.
#include "damage.hpp"

#ifdef DHP_HAS_PNG
#include <dhp/data/png.hpp>

#include <zlib.h>

namespace {

dhp::Bytes encode(const std::vector<std::uint8_t>& pixels, unsigned height, unsigned width,
                  png_uint_32 format) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.height = height;
  header.width = width;
  header.format = format;
  png_alloc_size_t size = 0;
  REQUIRE(png_image_write_to_memory(&header, nullptr, &size, 0, pixels.data(), 0, nullptr) != 0);
  dhp::Bytes result(size);
  REQUIRE(png_image_write_to_memory(&header, result.data(), &size, 0, pixels.data(), 0, nullptr) !=
          0);
  result.resize(size);
  return result;
}
const std::vector<std::uint8_t> six{10, 20, 30, 40, 50, 60, 70, 80, 90,
                                    5,  15, 25, 35, 45, 55, 65, 75, 85};

TEST_CASE("png: pixels are read exactly, in color and in gray") {
  const auto color = dhp::detail::decode_png(encode(six, 2, 3, PNG_FORMAT_RGB), "x");
  CHECK(color == dhp::Image{2, 3, 3, six});
  const std::vector<std::uint8_t> gray{1, 2, 3, 4};
  CHECK(dhp::detail::decode_png(encode(gray, 2, 2, PNG_FORMAT_GRAY), "x", {.channels = 1}) ==
        dhp::Image{2, 2, 1, gray});
  CHECK(dhp::detail::decode_png(encode({200, 0, 0, 0, 0, 250}, 1, 2, PNG_FORMAT_RGB), "x",
                                {.channels = 1})
            .pixels == std::vector<std::uint8_t>{60, 28});  // 0.299 of 200; Pillow's 28.49991
  CHECK(dhp::detail::decode_png(encode({7}, 1, 1, PNG_FORMAT_GRAY), "x").pixels ==
        std::vector<std::uint8_t>{7, 7, 7});
  // Transparency is dropped, like in torchvision.
  CHECK(dhp::detail::decode_png(encode({90, 80, 70, 0, 1, 2, 3, 99}, 1, 2, PNG_FORMAT_RGBA), "x")
            .pixels == std::vector<std::uint8_t>{90, 80, 70, 1, 2, 3});
  CHECK(
      dhp::detail::decode_png(encode({90, 0}, 1, 1, PNG_FORMAT_GA), "x", {.channels = 1}).pixels ==
      std::vector<std::uint8_t>{90});
}

std::string chunk(const std::string& type, const std::string& data) {
  auto bytes = std::string(3, '\0') + static_cast<char>(data.size()) + type + data;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()) + 4,
                         static_cast<uInt>(bytes.size() - 4));
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(sum >> shift);
  return bytes;
}

TEST_CASE("png: the passes of an interlaced file of 16 bits make one image") {
  // One pass has the first pixels of rows 0 and 2, the next their second pixels, the last row 1. A line of a pass
  // begins with its filter, 0.
  const std::string passes("\0\1\1\0\5\5\0\2\2\0\6\6\0\3\3\4\4", 17);
  std::string packed(compressBound(passes.size()), '\0');
  auto size = static_cast<uLongf>(packed.size());
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                   reinterpret_cast<const Bytef*>(passes.data()), passes.size()) == Z_OK);
  packed.resize(size);
  const auto file = bytes_of("\x89PNG\r\n\x1a\n" +
                             chunk("IHDR", std::string("\0\0\0\2\0\0\0\3\x10\0\0\0\1", 13)) +
                             chunk("IDAT", packed) + chunk("IEND", ""));
  CHECK(dhp::detail::decode_png(file, "x", {.channels = 1}) ==
        dhp::Image{3, 2, 1, {1, 2, 3, 4, 5, 6}});
  CHECK(dhp::detail::decode_png(file, "x").pixels[17] == 6);
}

TEST_CASE("png: gamma is ignored, and the orientation of EXIF is applied or counted") {
  auto file = encode(six, 2, 3, PNG_FORMAT_RGB);
  const auto insert = [&](const std::string& type, const std::string& data) {  // after IHDR
    const auto added = bytes_of(chunk(type, data));
    file.insert(file.begin() + 33, added.begin(), added.end());
  };
  insert("gAMA", std::string("\0\1\x86\xa0", 4));  // 1: linear
  CHECK(dhp::detail::decode_png(file, "x") == dhp::Image{2, 3, 3, six});
  // The rows of pixels "abc/def", and how each orientation shows them.
  const char* const shown[] = {"abc/def",  "cba/fed",  "fed/cba",  "def/abc",
                               "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad"};
  const auto plain = file;
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    file = plain;
    insert("eXIf", std::string("MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0", 19) +
                       static_cast<char>(orientation) + std::string(6, '\0'));
    dhp::DecodeOptions options{.turned = std::make_shared<std::atomic<std::int64_t>>(0)};
    CHECK(dhp::detail::decode_png(file, "x", options) == dhp::Image{2, 3, 3, six});
    CHECK(*options.turned == (orientation == 1 ? 0 : 1));
    options.exif = true;
    const auto image = dhp::detail::decode_png(file, "x", options);
    std::string seen;
    for (int y = 0; y < image.height; ++y) {
      if (y > 0) seen += '/';
      for (int x = 0; x < image.width; ++x)
        for (int pixel = 0; pixel < 6; ++pixel)
          if (six[3 * static_cast<std::size_t>(pixel)] == image.pixels[image.at(y, x)])
            seen += static_cast<char>('a' + pixel);
    }
    CHECK(seen == shown[orientation - 1]);
  }
}

TEST_CASE("exif: fill bytes may stand before the marker of a JPEG") {
  const std::string tiff("MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0", 26);
  for (std::size_t fills = 0; fills < 3; ++fills)
    CHECK(dhp::detail::jpeg_orientation(bytes_of("\xff\xd8" + std::string(fills, '\xff') +
                                                 "\xff\xe1" +
                                                 std::string("\0\x22"
                                                             "Exif\0\0",
                                                             8) +
                                                 tiff)) == 6);
}

TEST_CASE("png: damage is reported without a crash") {
  check_damage([](const dhp::Bytes& bytes,
                  const std::string& name) { (void)dhp::detail::decode_png(bytes, name); },
               encode(six, 2, 3, PNG_FORMAT_RGB), 400);
  CHECK_THROWS_WITH_AS(
      (void)dhp::detail::decode_png(bytes_of("\xff\xd8\xff\xe0 is a JPEG"), "a.png"),
      Contains("a.png, byte 8: not a PNG file"), dhp::Error);
}

TEST_CASE("png: size is limited before decoding") {
  const auto file = encode(six, 2, 3, PNG_FORMAT_RGB);
  CHECK_THROWS_WITH_AS((void)dhp::detail::decode_png(file, "x", {.pixel_limit = 5}),
                       Contains("above the limit of 5 pixels"), dhp::Error);
  CHECK_THROWS_AS((void)dhp::detail::decode_png(file, "x", {.channels = 2}), dhp::Error);
}

}  // namespace
#else
TEST_CASE("png: skipped, libpng was not found") { MESSAGE("skipped: libpng was not found"); }
#endif
