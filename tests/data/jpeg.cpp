// JPEG: written by libjpeg, read by us; damage.
#include "damage.hpp"

#ifdef DHP_HAS_JPEG
#include <dhp/data/jpeg.hpp>

#include <cstdlib>

namespace {

// A smooth image, so that the loss of the format stays small.
dhp::Image smooth(int height, int width, int channels) {
  auto made = dhp::Image::blank(height, width, channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        made.pixels[made.at(y, x) + static_cast<std::size_t>(c)] =
            static_cast<std::uint8_t>(40 + 3 * y + 2 * x + 10 * c);
  return made;
}
dhp::Bytes encode(const dhp::Image& image, J_COLOR_SPACE space, bool progressive,
                  bool scan_each = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &data, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  const jpeg_scan_info scans[3]{
      {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (scan_each) {
    info.scan_info = scans;
    info.num_scans = 3;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data() +
                                     image.at(static_cast<int>(info.next_scanline), 0));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* first = reinterpret_cast<const std::byte*>(data);
  dhp::Bytes made(first, first + size);
  std::free(data);
  return made;
}
int largest_difference(const dhp::Image& a, const dhp::Image& b) {
  REQUIRE(a.pixels.size() == b.pixels.size());
  int largest = 0;
  for (std::size_t at = 0; at < a.pixels.size(); ++at)
    largest = std::max(largest, std::abs(a.pixels[at] - b.pixels[at]));
  return largest;
}
void parse(const dhp::Bytes& bytes, const std::string& name) {
  (void)dhp::decode_jpeg(bytes, name);
}

TEST_CASE("jpeg: pixels come back, in colour and in grey, plain and progressive") {
  for (const bool progressive : {false, true}) {
    const auto colour = smooth(17, 19, 3);
    const auto read = dhp::decode_jpeg(encode(colour, JCS_RGB, progressive), "x");
    CHECK(read.height == 17);
    CHECK(read.width == 19);
    CHECK(largest_difference(read, colour) < 6);
  }
  const auto grey = smooth(9, 8, 1);
  CHECK(largest_difference(
            dhp::decode_jpeg(encode(grey, JCS_GRAYSCALE, false), "x", {.channels = 1}), grey) < 4);
  CHECK(dhp::decode_jpeg(encode(grey, JCS_GRAYSCALE, false), "x").channels == 3);
  CHECK(dhp::decode_jpeg(encode(smooth(9, 8, 3), JCS_RGB, false), "x", {.channels = 1}).channels ==
        1);
}

TEST_CASE("jpeg: four inks become three colours or grey") {
  auto inks = dhp::Image::blank(8, 8, 4);
  for (std::size_t at = 0; at < inks.pixels.size(); at += 4) {
    inks.pixels[at] = 200;  // inverted: much red light
    inks.pixels[at + 3] = 255;
  }
  const auto file = encode(inks, JCS_CMYK, false);
  const auto colour = dhp::decode_jpeg(file, "x");
  CHECK(std::abs(colour.pixels[0] - 200) < 4);
  CHECK(colour.pixels[1] < 4);
  CHECK(std::abs(dhp::decode_jpeg(file, "x", {.channels = 1}).pixels[0] - 60) < 4);
}

TEST_CASE("jpeg: damage is named and never crashes; what is cut off is not painted grey") {
  dhp_test::check_damage(parse, encode(smooth(16, 16, 3), JCS_RGB, false), 400);
  dhp_test::check_damage(parse, encode(smooth(8, 16, 3), JCS_RGB, true), 400);
  CHECK_THROWS_WITH_AS(parse(dhp_test::bytes_of("\x89PNG is a PNG"), "a.jpg"),
                       doctest::Contains("a.jpg: damaged JPEG (Not a JPEG file"), dhp::Error);
}

TEST_CASE("jpeg: size and number of scans are limited") {
  CHECK_THROWS_WITH_AS(
      (void)dhp::decode_jpeg(encode(smooth(4, 4, 3), JCS_RGB, false), "x", {.pixel_limit = 15}),
      doctest::Contains("above the limit"), dhp::Error);
  // The last of three scans, very often.
  auto file = encode(smooth(8, 8, 3), JCS_RGB, false, true);
  parse(file, "x");
  std::size_t last = 0;
  for (std::size_t at = 0; at + 1 < file.size(); ++at)
    if (file[at] == std::byte{0xff} && file[at + 1] == std::byte{0xda}) last = at;
  const dhp::Bytes scan(file.begin() + static_cast<std::ptrdiff_t>(last), file.end() - 2);
  for (int copy = 0; copy < 510; ++copy) file.insert(file.end() - 2, scan.begin(), scan.end());
  CHECK_THROWS_WITH_AS(parse(file, "x"), doctest::Contains("x: damaged JPEG (more than 500 scans)"),
                       dhp::Error);
}

}  // namespace
#else
TEST_CASE("jpeg: skipped, libjpeg was not found") { MESSAGE("skipped: libjpeg was not found"); }
#endif
