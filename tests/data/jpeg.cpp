// JPEG: files written by libjpeg and read by dhp, parts of images, damage.
#include "damage.hpp"

#ifdef DHP_HAS_JPEG
#include <dhp/data/image_batcher.hpp>
#include <dhp/data/image_folder.hpp>
#include <dhp/data/jpeg.hpp>

#include <random>

namespace {

// A smooth image, so that the format's loss stays small.
dhp::Image smooth(int height, int width, int channels) {
  auto result = dhp::Image::blank(height, width, channels);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        result.pixels[result.at(y, x) + static_cast<std::size_t>(c)] =
            static_cast<std::uint8_t>(40 + 3 * y + 2 * x + 10 * c);
  return result;
}
dhp::Bytes encode(const dhp::Image& image, std::span<const jpeg_scan_info> scans,
                  bool progressive = false, bool fine_colors = false) {
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
  info.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                        : image.channels == 3 ? JCS_RGB
                                              : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (fine_colors) info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  if (progressive) jpeg_simple_progression(&info);
  if (!scans.empty()) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  auto pixels = image.pixels;
  for (int y = 0; y < image.height; ++y) {
    JSAMPROW row = pixels.data() + image.at(y, 0);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* first = reinterpret_cast<const std::byte*>(data);
  dhp::Bytes result(first, first + size);
  std::free(data);
  return result;
}
dhp::Bytes encode(const dhp::Image& image, bool progressive = false, bool fine_colors = false) {
  return encode(image, {}, progressive, fine_colors);
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

TEST_CASE("jpeg: pixels survive a round trip, in color and gray, plain and progressive") {
  for (const bool progressive : {false, true}) {
    const auto color = smooth(17, 19, 3);
    const auto read = dhp::detail::decode_jpeg(encode(color, progressive), "x");
    CHECK(read.height == 17);
    CHECK(read.width == 19);
    CHECK(largest_difference(read, color) < 6);
  }
  const auto gray = smooth(9, 8, 1);
  CHECK(largest_difference(dhp::detail::decode_jpeg(encode(gray), "x", {.channels = 1}), gray) < 4);
  CHECK(dhp::detail::decode_jpeg(encode(gray), "x").channels == 3);
}

TEST_CASE("jpeg: gray is that of the colors, also where the file has colors beyond 0 to 255") {
  auto image = dhp::Image::blank(16, 16, 3);
  for (std::size_t at = 0; at < image.pixels.size(); ++at)
    image.pixels[at] = at * at % 7 < 3 ? 255 : 0;
  const auto file = encode(image);
  auto color = dhp::detail::decode_jpeg(file, "x");
  dhp::detail::make_gray(color);
  CHECK(dhp::detail::decode_jpeg(file, "x", {.channels = 1}) == color);
}

TEST_CASE("jpeg: a large image is decoded at 1/2, 1/4 or 1/8 of its size") {
  const auto whole = smooth(32, 40, 3);
  const auto file = encode(whole);
  for (const auto& [least, height, width] :
       {std::array{17, 32, 40}, {16, 16, 20}, {8, 8, 10}, {4, 4, 5}, {1, 4, 5}, {0, 32, 40}}) {
    CAPTURE(least);
    const auto read = dhp::detail::decode_jpeg(file, "x", {.min_side = least});
    CHECK(read.height == height);
    CHECK(read.width == width);
    // Checks the center of pixel (2, 2) of the whole image.
    const int scale = 32 / height;
    const int at = (5 * scale - 1) / 2;
    CHECK(std::abs(read.pixels[read.at(2, 2)] - whole.pixels[whole.at(at, at)]) < 6);
  }
  CHECK(dhp::detail::decode_jpeg(encode(smooth(33, 41, 3)), "x", {.min_side = 10}).height == 17);
  check_damage(
      [](const dhp::Bytes& bytes, const std::string& name) {
        (void)dhp::detail::decode_jpeg(bytes, name, {.min_side = 4});
      },
      encode(smooth(16, 16, 3)), 200);
}

TEST_CASE("jpeg: a decoded part has the pixels of the whole image") {
  auto image = smooth(75, 90, 3);
  for (std::size_t at = 0; at < image.pixels.size(); at += 7)
    image.pixels[at] ^= 0x5a;  // so that colors vary
  std::mt19937 random(1);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  for (const bool fine : {false, true})
    for (const bool progressive : {false, true})
      for (const int least : {0, 30}) {
        const auto file = encode(image, progressive, fine);
        const auto whole = dhp::detail::decode_jpeg(file, "x", {.min_side = least});
        for (int trial = 0; trial < 40; ++trial) {
          dhp::detail::Box box{0, 0, 1 + below(whole.height), 1 + below(whole.width)};
          box.top = below(whole.height - box.height + 1);
          box.left = below(whole.width - box.width + 1);
          CAPTURE(box.top);
          CAPTURE(box.left);
          CAPTURE(box.height);
          CAPTURE(box.width);
          const auto part = dhp::detail::decode_jpeg(
              file, "x", {.min_side = least, .part = [&](int, int) { return box; }});
          CHECK(part == dhp::crop(whole, box));
        }
      }
  // Rows below the part are not decoded, but an error reports if they are missing.
  auto file = encode(image);
  const auto top = [](int, int width) { return dhp::detail::Box{0, 0, 8, width}; };
  CHECK(dhp::detail::decode_jpeg(file, "x", {.part = top}).height == 8);
  file.erase(file.end() - 30, file.end());
  CHECK_THROWS_WITH_AS((void)dhp::detail::decode_jpeg(file, "x", {.part = top}),
                       Contains("x: damaged JPEG (it has no end)"), dhp::Error);
}

TEST_CASE("jpeg: batches of decoded parts equal those of whole images") {
  struct Whole {
    using Sample = dhp::LabeledImage;
    dhp::ImageFolder folder;
    [[nodiscard]] std::int64_t size() const { return folder.size(); }
    [[nodiscard]] Sample get(std::int64_t index) const { return folder.get(index); }
  };
  const Folder photos;
  photos.write("a/0.jfif", encode(smooth(60, 80, 3)));  // .jfif is a JPEG as some browsers name it
  const dhp::ImageFolder folder(photos.path, {dhp::jpeg_decoder()});
  const dhp::ImageBatcherOptions options{
      .height = 24,
      .width = 24,
      .augment = dhp::AugmentOptions{.flip = true, .random_resized_crop = true}};
  const dhp::ImageBatcher parts(folder, options);
  const dhp::ImageBatcher whole(Whole{folder}, options);
  const std::vector<std::int64_t> first{0};
  for (std::int64_t epoch = 0; epoch < 20; ++epoch)
    CHECK(parts.collate(first, epoch) == whole.collate(first, epoch));
}

TEST_CASE("jpeg: four inks (CMYK) become color or gray") {
  auto inks = dhp::Image::blank(8, 8, 4);
  for (std::size_t at = 0; at < inks.pixels.size(); at += 4) {
    inks.pixels[at] = 200;  // inverted: much red light
    inks.pixels[at + 3] = 255;
  }
  const auto file = encode(inks);
  const auto color = dhp::detail::decode_jpeg(file, "x");
  CHECK(std::abs(color.pixels[0] - 200) < 4);
  CHECK(color.pixels[1] < 4);
  CHECK(std::abs(dhp::detail::decode_jpeg(file, "x", {.channels = 1}).pixels[0] - 60) < 4);
  const dhp::Image one{1, 1, 4, {102, 200, 0, 199}};
  using Pixels = std::vector<std::uint8_t>;
  auto found = dhp::detail::from_inverted_cmyk(one);
  CHECK(found.pixels == Pixels{80, 156, 0});  // Pillow's
  dhp::detail::make_gray(found);
  CHECK(found.pixels == Pixels{115});
}

TEST_CASE("jpeg: damage is reported without a crash, also a truncated file") {
  check_damage(parse, encode(smooth(16, 16, 3)), 400);
  check_damage(parse, encode(smooth(8, 16, 3), true), 400);
  CHECK_THROWS_WITH_AS(parse(bytes_of("\x89PNG is a PNG"), "a.jpg"),
                       Contains("a.jpg: damaged JPEG (Not a JPEG file"), dhp::Error);
}

TEST_CASE("jpeg: extra bytes are accepted, but not together with a missing end") {
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
  // A scan for each bit of each coefficient of a block: 568 scans.
  const auto scan = [](int coefficient, int above, int bit) {
    return jpeg_scan_info{1, {}, coefficient, coefficient, above, bit};
  };
  std::vector<jpeg_scan_info> scans{scan(0, 0, 0)};
  for (int coefficient = 1; coefficient < 64; ++coefficient)
    for (int bit = 8; bit >= 0; --bit)
      scans.push_back(scan(coefficient, bit == 8 ? 0 : bit + 1, bit));
  CHECK_THROWS_WITH_AS(parse(encode(smooth(8, 8, 1), scans), "x"), Contains("more than 500 scans"),
                       dhp::Error);
  scans.resize(451);
  parse(encode(smooth(8, 8, 1), scans), "x");
}

}  // namespace
#else
TEST_CASE("jpeg: skipped, libjpeg was not found") { MESSAGE("skipped: libjpeg was not found"); }
#endif
