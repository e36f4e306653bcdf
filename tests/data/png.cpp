// PNG: written by libpng, read by us; damage.
#include "damage.hpp"

#ifdef DHP_HAS_PNG
#include <dhp/data/png.hpp>

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
  dhp::Bytes made(size);
  REQUIRE(png_image_write_to_memory(&header, made.data(), &size, 0, pixels.data(), 0, nullptr) !=
          0);
  made.resize(size);
  return made;
}
const std::vector<std::uint8_t> six{10, 20, 30, 40, 50, 60, 70, 80, 90,
                                    5,  15, 25, 35, 45, 55, 65, 75, 85};

TEST_CASE("png: pixels come back, in colour and in grey") {
  const auto colour = dhp::decode_png(encode(six, 2, 3, PNG_FORMAT_RGB), "x");
  CHECK(colour == dhp::Image{2, 3, 3, six});
  const std::vector<std::uint8_t> grey{1, 2, 3, 4};
  CHECK(dhp::decode_png(encode(grey, 2, 2, PNG_FORMAT_GRAY), "x", {.channels = 1}) ==
        dhp::Image{2, 2, 1, grey});
  CHECK(dhp::decode_png(encode({7}, 1, 1, PNG_FORMAT_GRAY), "x").pixels ==
        std::vector<std::uint8_t>{7, 7, 7});
  CHECK(dhp::decode_png(encode({90, 80, 70, 0}, 1, 1, PNG_FORMAT_RGBA), "x").pixels ==
        std::vector<std::uint8_t>{0, 0, 0});  // transparent
}

TEST_CASE("png: damage is named and never crashes") {
  dhp_test::check_damage(
      [](const dhp::Bytes& bytes, const std::string& name) { (void)dhp::decode_png(bytes, name); },
      encode(six, 2, 3, PNG_FORMAT_RGB), 400);
  CHECK_THROWS_WITH_AS(
      (void)dhp::decode_png(dhp_test::bytes_of("\xff\xd8\xff\xe0 is a JPEG"), "a.png"),
      doctest::Contains("a.png, byte 8: not a PNG file"), dhp::Error);
}

TEST_CASE("png: size is limited before decoding") {
  const auto file = encode(six, 2, 3, PNG_FORMAT_RGB);
  CHECK_THROWS_WITH_AS((void)dhp::decode_png(file, "x", {.pixel_limit = 5}),
                       doctest::Contains("above the limit of 5 pixels"), dhp::Error);
  CHECK_THROWS_AS((void)dhp::decode_png(file, "x", {.channels = 2}), dhp::Error);
}

}  // namespace
#else
TEST_CASE("png: skipped, libpng was not found") { MESSAGE("skipped: libpng was not found"); }
#endif
