// Augmentation: a pure function of (seed, epoch, sample) whose results have the promised size and area.
#include <dhp/data/augment.hpp>
#include <tests/support/test.hpp>

namespace {

dhp::Image ramp(int height, int width) {
  auto result = dhp::Image::blank(height, width, 1);
  for (std::size_t at = 0; at < result.pixels.size(); ++at)
    result.pixels[at] = static_cast<std::uint8_t>(at * 7 + 1);
  return result;
}
dhp::Image one(const dhp::Image& image, const AugmentOptions& options, std::int64_t epoch,
               std::int64_t sample) {
  SampleRandom random(1, epoch, sample, dhp::DataUse::augment);
  return dhp::augment(image, options, 8, 8, random);
}

TEST_CASE("augment: the same key repeats the image, another epoch or sample changes it") {
  const AugmentOptions options{.crop_padding = 3, .flip = true, .random_resized_crop = true};
  const auto image = ramp(20, 30);
  CHECK(one(image, options, 2, 5) == one(image, options, 2, 5));
  CHECK(one(image, options, 2, 5) != one(image, options, 3, 5));
  CHECK(one(image, options, 2, 5) != one(image, options, 2, 6));
  CHECK(one(image, {}, 0, 0) == dhp::fit(image, 8, 8));
}

TEST_CASE("augment: padding gives every offset, and flip mirrors half of the images") {
  const auto image = ramp(8, 8);
  std::set<std::vector<std::uint8_t>> moved;
  int mirrored = 0;
  for (std::int64_t sample = 0; sample < 400; ++sample) {
    moved.insert(one(image, {.crop_padding = 1}, 0, sample).pixels);
    if (one(image, {.flip = true}, 0, sample) == dhp::mirror(image)) ++mirrored;
  }
  CHECK(moved.size() == 9);
  CHECK(moved.count(image.pixels) == 1);
  CHECK(mirrored > 150);
  CHECK(mirrored < 250);
}

TEST_CASE("augment: random boxes are inside the image, with the requested area and ratio") {
  const auto image = ramp(60, 90);
  const AugmentOptions options{.random_resized_crop = true, .area_min = 0.2, .area_max = 0.5};
  for (std::int64_t sample = 0; sample < 300; ++sample) {
    SampleRandom random(1, 0, sample, dhp::DataUse::augment);
    const auto box = dhp::detail::random_box(60, 90, options, random);
    CHECK(box.top >= 0);
    CHECK(box.left >= 0);
    CHECK(box.top + box.height <= 60);
    CHECK(box.left + box.width <= 90);
    const double area = box.height * box.width / 5400.0;
    CHECK((area > 0.18 && area < 0.52));
    const double ratio = static_cast<double>(box.width) / box.height;
    CHECK((ratio > 0.7 && ratio < 1.4));
  }
}

TEST_CASE("augment: extremely narrow images work") {
  for (const auto& image : {ramp(1, 500), ramp(500, 1), ramp(1, 1), ramp(2, 3)}) {
    const auto result = one(image, {.random_resized_crop = true}, 0, 0);
    CHECK(result.height == 8);
    CHECK(result.width == 8);
    const auto fitted = dhp::fit(image, 8, 8);
    CHECK(fitted.height == 8);
    CHECK(fitted.width == 8);
  }
}

TEST_CASE("augment: fit resizes the whole image and cuts out the center, like torchvision") {
  const int sizes[][6] = {
      {20, 30, 16, 24, 1, 5},  // image, resized (14 * 8 / 7 = 16), place of the center
      {31, 20, 24, 16, 5, 1},
      {21, 47, 16, 35, 1, 10},  // 10.5 is rounded to an even number
      {5, 6, 16, 19, 1, 2},
      {16, 20, 16, 20, 1, 3}};
  for (const auto& [height, width, tall, wide, top, left] : sizes) {
    const auto image = ramp(height, width);
    const auto whole = dhp::resize(image, {0, 0, height, width}, tall, wide);
    CHECK(dhp::fit(image, 14, 14) == dhp::crop(whole, {top, left, 14, 14}));
  }
}

TEST_CASE("augment: fit takes the center") {
  auto image = dhp::Image::blank(64, 128, 1);  // black, except for 64 white columns in the middle
  for (int y = 0; y < 64; ++y)
    for (int x = 32; x < 96; ++x) image.pixels[image.at(y, x)] = 255;
  const auto result = dhp::fit(image, 16, 16);
  for (const auto value : result.pixels) CHECK(value == 255);
  CHECK(dhp::fit(ramp(8, 8), 8, 8) == ramp(8, 8));
}

}  // namespace
