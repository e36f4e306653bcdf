// JPEG: written by TurboJPEG, read by us; damage.
#include "damage.hpp"

#ifdef DHP_HAS_TURBOJPEG
#include <dhp/data/jpeg.hpp>

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
dhp::Bytes encode(const dhp::Image& image, bool progressive = false) {
  const std::unique_ptr<void, int (*)(tjhandle)> handle(tjInitCompress(), &tjDestroy);
  const int format = image.channels == 1 ? TJPF_GRAY : image.channels == 3 ? TJPF_RGB : TJPF_CMYK;
  unsigned char* data = nullptr;
  unsigned long size = 0;
  REQUIRE(tjCompress2(handle.get(), image.pixels.data(), image.width, 0, image.height, format,
                      &data, &size, image.channels == 1 ? TJSAMP_GRAY : TJSAMP_420, 95,
                      progressive ? TJFLAG_PROGRESSIVE : 0) == 0);
  const auto* first = reinterpret_cast<const std::byte*>(data);
  dhp::Bytes made(first, first + size);
  tjFree(data);
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
  (void)dhp::detail::decode_jpeg(bytes, name);
}

TEST_CASE("jpeg: pixels come back, in colour and in grey, plain and progressive") {
  for (const bool progressive : {false, true}) {
    const auto colour = smooth(17, 19, 3);
    const auto read = dhp::detail::decode_jpeg(encode(colour, progressive), "x");
    CHECK(read.height == 17);
    CHECK(read.width == 19);
    CHECK(largest_difference(read, colour) < 6);
  }
  const auto grey = smooth(9, 8, 1);
  CHECK(largest_difference(dhp::detail::decode_jpeg(encode(grey), "x", {.channels = 1}), grey) < 4);
  CHECK(dhp::detail::decode_jpeg(encode(grey), "x").channels == 3);
  CHECK(dhp::detail::decode_jpeg(encode(smooth(9, 8, 3)), "x", {.channels = 1}).channels == 1);
}

TEST_CASE("jpeg: a large image comes in a half, a quarter or an eighth, with the same look") {
  const auto whole = smooth(32, 40, 3);
  const auto file = encode(whole);
  for (const auto& [least, height, width] :
       {std::array{17, 32, 40}, {16, 16, 20}, {8, 8, 10}, {4, 4, 5}, {1, 4, 5}, {0, 32, 40}}) {
    CAPTURE(least);
    const auto read = dhp::detail::decode_jpeg(file, "x", {.least_side = least});
    CHECK(read.height == height);
    CHECK(read.width == width);
    // The centre of its pixel (2, 2) in the whole image.
    const int scale = 32 / height;
    const int at = (5 * scale - 1) / 2;
    CHECK(std::abs(read.pixels[read.at(2, 2)] - whole.pixels[whole.at(at, at)]) < 6);
  }
  CHECK(dhp::detail::decode_jpeg(encode(smooth(33, 41, 3)), "x", {.least_side = 10}).height == 17);
  check_damage(
      [](const dhp::Bytes& bytes, const std::string& name) {
        (void)dhp::detail::decode_jpeg(bytes, name, {.least_side = 4});
      },
      encode(smooth(16, 16, 3)), 200);
}

TEST_CASE("jpeg: four inks become three colours or grey") {
  auto inks = dhp::Image::blank(8, 8, 4);
  for (std::size_t at = 0; at < inks.pixels.size(); at += 4) {
    inks.pixels[at] = 200;  // inverted: much red light
    inks.pixels[at + 3] = 255;
  }
  const auto file = encode(inks);
  const auto colour = dhp::detail::decode_jpeg(file, "x");
  CHECK(std::abs(colour.pixels[0] - 200) < 4);
  CHECK(colour.pixels[1] < 4);
  CHECK(std::abs(dhp::detail::decode_jpeg(file, "x", {.channels = 1}).pixels[0] - 60) < 4);
}

TEST_CASE("jpeg: damage is named and never crashes; what is cut off is not painted grey") {
  check_damage(parse, encode(smooth(16, 16, 3)), 400);
  check_damage(parse, encode(smooth(8, 16, 3), true), 400);
  CHECK_THROWS_WITH_AS(parse(bytes_of("\x89PNG is a PNG"), "a.jpg"),
                       Contains("a.jpg: damaged JPEG (Not a JPEG file"), dhp::Error);
}

TEST_CASE("jpeg: untidy files are read, but not if they are cut off as well") {
  auto file = encode(smooth(16, 16, 3));
  file.insert(file.begin() + 2, 5, std::byte{0x12});  // extraneous bytes before the first segment
  const auto read = dhp::detail::decode_jpeg(file, "x");
  CHECK(largest_difference(read, smooth(16, 16, 3)) < 6);
  file.erase(file.end() - 2, file.end());
  CHECK_THROWS_WITH_AS(parse(file, "x"), Contains("x: damaged JPEG ("), dhp::Error);
}

TEST_CASE("jpeg: size and number of scans are limited") {
  CHECK_THROWS_WITH_AS(
      (void)dhp::detail::decode_jpeg(encode(smooth(4, 4, 3)), "x", {.pixel_limit = 15}),
      Contains("above the limit"), dhp::Error);
  // The last scan, very often.
  auto file = encode(smooth(8, 8, 3), true);
  parse(file, "x");
  std::size_t last = 0;
  for (std::size_t at = 0; at + 1 < file.size(); ++at)
    if (file[at] == std::byte{0xff} && file[at + 1] == std::byte{0xda}) last = at;
  const dhp::Bytes scan(file.begin() + static_cast<std::ptrdiff_t>(last), file.end() - 2);
  for (int copy = 0; copy < 510; ++copy) file.insert(file.end() - 2, scan.begin(), scan.end());
  CHECK_THROWS_WITH_AS(parse(file, "x"), Contains("more than 500 scans"), dhp::Error);
}

}  // namespace
#else
TEST_CASE("jpeg: skipped, TurboJPEG was not found") { MESSAGE("skipped: TurboJPEG was not found"); }
#endif
