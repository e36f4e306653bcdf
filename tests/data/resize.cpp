// Crops and resizes.
#include <dhp/data/resize.hpp>
#include <tests/support/test.hpp>

namespace {

dhp::Image gray(int height, int width, std::vector<std::uint8_t> pixels) {
  return {height, width, 1, std::move(pixels)};
}

dhp::Image resize(const dhp::Image& image, int height, int width) {
  return dhp::resize(image, {0, 0, image.height, image.width}, height, width);
}

TEST_CASE("resize: crop works inside, across the edge and outside") {
  const auto image = gray(2, 3, {1, 2, 3, 4, 5, 6});
  CHECK(dhp::crop(image, {0, 1, 2, 2}) == gray(2, 2, {2, 3, 5, 6}));
  CHECK(dhp::crop(image, {-1, -1, 2, 3}) == gray(2, 3, {0, 0, 0, 0, 1, 2}));
  CHECK(dhp::crop(image, {1, 2, 2, 2}) == gray(2, 2, {6, 0, 0, 0}));
  CHECK(dhp::crop(image, {9, 9, 1, 1}) == gray(1, 1, {0}));
  CHECK(dhp::crop(image, {0, -9, 1, 2}) == gray(1, 2, {0, 0}));
}

TEST_CASE("resize: mirror swaps columns, not channels") {
  CHECK(dhp::mirror({1, 2, 3, {1, 2, 3, 4, 5, 6}}) == dhp::Image{1, 2, 3, {4, 5, 6, 1, 2, 3}});
}

TEST_CASE("resize: a constant stays constant, at any size") {
  dhp::Image image{5, 7, 3, std::vector<std::uint8_t>(105, 77)};
  for (const int height : {1, 3, 5, 20})
    for (const int width : {1, 4, 7, 31}) {
      const auto result = resize(image, height, width);
      CHECK(result.height == height);
      CHECK(result.width == width);
      for (const auto value : result.pixels) CHECK(value == 77);
    }
}

TEST_CASE("resize: matches values computed by hand") {
  // Doubling uses weights 3/4 and 1/4 of two neighbors; pixels at the ends repeat.
  CHECK(resize(gray(1, 2, {0, 100}), 1, 4) == gray(1, 4, {0, 25, 75, 100}));
  CHECK(resize(gray(2, 1, {0, 100}), 4, 1) == gray(4, 1, {0, 25, 75, 100}));
  // Halving uses weights 1, 3, 3, 1 of four neighbors; at the ends the weights inside the image are renormalized.
  CHECK(resize(gray(1, 4, {0, 80, 80, 160}), 1, 2) == gray(1, 2, {46, 114}));
  // Shrinking fine stripes to a quarter makes them gray, because the filter is antialiased.
  const auto stripes =
      resize(gray(1, 16, {0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255}), 1, 4);
  for (const auto value : stripes.pixels) CHECK(std::abs(value - 128) < 16);
}

TEST_CASE("resize: each pixel of noise is within two of the exact sum, in any number of channels") {
  for (const int channels : {1, 3, 4})
    for (const auto& [height, width] : {std::pair{9, 40}, {23, 11}, {70, 90}}) {
      auto image = dhp::Image::blank(31, 37, channels);
      for (std::size_t at = 0; at < image.pixels.size(); ++at)
        image.pixels[at] = static_cast<std::uint8_t>(at * at * 31 >> 3);
      const auto result = resize(image, height, width);
      const auto weight = [](int from, int place, double scale) {
        return std::max(0.0,
                        1 - std::abs(from + 0.5 - (place + 0.5) * scale) / std::max(scale, 1.0));
      };
      for (int y = 0; y < height; ++y)
        for (int x = 0; x < width; ++x)
          for (int c = 0; c < channels; ++c) {
            double sum = 0, weights = 0;
            for (int row = 0; row < 31; ++row)
              for (int column = 0; column < 37; ++column) {
                const double by = weight(row, y, 31.0 / height) * weight(column, x, 37.0 / width);
                sum += by * image.pixels[image.at(row, column) + static_cast<std::size_t>(c)];
                weights += by;
              }
            const auto value = result.pixels[result.at(y, x) + static_cast<std::size_t>(c)];
            REQUIRE(std::abs(value - sum / weights) < 2);
          }
    }
}

TEST_CASE("resize: many rows are summed as exactly as many columns") {
  for (const int ratio : {8, 64, 1000})
    for (const int period : {2, 3, 4}) {
      const int extent = 8 * ratio;
      std::vector<std::uint8_t> stripes;
      for (int at = 0; at < extent; ++at) stripes.push_back(at % period < period / 2 ? 255 : 0);
      const auto by_rows = resize(gray(extent, 1, stripes), 8, 1);
      const auto by_columns = resize(gray(1, extent, stripes), 1, 8);
      for (std::size_t at = 0; at < 8; ++at)
        CHECK(std::abs(by_rows.pixels[at] - by_columns.pixels[at]) <= 1);
    }
}

TEST_CASE("resize: resizing a box equals resizing its crop") {
  dhp::Image image{6, 8, 2, {}};
  for (int value = 0; value < 96; ++value)
    image.pixels.push_back(static_cast<std::uint8_t>(value * 37));
  const dhp::detail::Box box{1, 2, 4, 5};
  CHECK(dhp::resize(image, box, 3, 9) == resize(dhp::crop(image, box), 3, 9));
  CHECK_THROWS_AS((void)dhp::resize(image, {3, 0, 4, 4}, 2, 2), dhp::Error);
  CHECK_THROWS_AS((void)resize(image, 0, 2), dhp::Error);
}

}  // namespace
