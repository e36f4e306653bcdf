// Image batches: shape, normalization in every type, labels, and errors that name the sample.
#include <dhp/data/image_batcher.hpp>
#include <examples/data/synthetic_images.hpp>
#include <tests/support/test.hpp>

namespace {

dhp::ImageArray images(const dhp::Shape& shape, const std::vector<std::uint8_t>& pixels,
                       const std::vector<std::int32_t>& labels) {
  return {dhp::HostArray(shape, pixels), dhp::HostArray({shape[0]}, labels), 5, "images", "labels"};
}
dhp::ImageArray two_images() {  // 2 x 2 pixels, 1 channel
  return images({2, 2, 2}, {0, 51, 102, 153, 255, 0, 0, 255}, {4, 1});
}
const std::vector<std::int64_t> both{1, 0};

TEST_CASE("image batcher: values are normalized, in the order of the indices") {
  const dhp::ImageBatcher batcher(two_images(), {.height = 2,
                                                 .width = 2,
                                                 .channels = 1,
                                                 .dtype = DType::f64,
                                                 .mean = {0.2},
                                                 .deviation = {0.5}});
  static_assert(dhp::Batcher<std::remove_const_t<decltype(batcher)>>);
  const auto batch = batcher.collate(both, 0);
  CHECK(batch.input.shape() == dhp::Shape{2, 2, 2, 1});
  const auto values = batch.input.values<double>();
  const std::vector<double> expected{1.6, -0.4, -0.4, 1.6, -0.4, 0.0, 0.4, 0.8};
  for (std::size_t at = 0; at < expected.size(); ++at)
    CHECK(values[at] == Approx(expected[at]).epsilon(1e-12));
  CHECK(batch.side.front().first == "labels");
  CHECK(batch.side.front().second == dhp::HostArray({2}, std::vector<std::int32_t>{1, 4}));
  CHECK(batch.counts.front() == std::pair<std::string, std::int64_t>{"samples", 2});
}

TEST_CASE("image batcher: each channel has its own mean, and other types are rounded") {
  const dhp::ImageBatcher three(
      images({1, 1, 1, 3}, {255, 255, 255}, {0}),
      {.height = 1, .width = 1, .channels = 3, .mean = {0, 0.5, 1}, .deviation = {1, 0.5, 2}});
  const std::vector<std::int64_t> first{0};
  CHECK(three.collate(first, 0).input == dhp::HostArray({1, 1, 1, 3}, std::vector<float>{1, 1, 0}));
  for (const auto type : {DType::f32, DType::bf16, DType::f16}) {
    const dhp::ImageBatcher batcher(two_images(),
                                    {.height = 2, .width = 2, .channels = 1, .dtype = type});
    const auto batch = batcher.collate(both, 0);
    dhp::visit_floating(type, [&]<class T>(dhp::TypeTag<T>) {
      CHECK(static_cast<double>(batch.input.values<T>()[5]) ==
            static_cast<double>(static_cast<T>(51.0 / 255)));
    });
  }
}

TEST_CASE("image batcher: augmentation depends on the sample, not on its place or its batch") {
  const examples::SyntheticImages data({.samples = 12, .height = 9, .width = 9, .channels = 1});
  const dhp::ImageBatcher batcher(data,
                                  {.height = 8,
                                   .width = 8,
                                   .channels = 1,
                                   .augment = dhp::AugmentOptions{.crop_padding = 2, .flip = true},
                                   .seed = 3});
  const std::vector<std::int64_t> some{3, 7};
  const std::vector<std::int64_t> alone{7};
  const auto pair = batcher.collate(some, 1);
  const auto single = batcher.collate(alone, 1);
  const auto second = pair.input.values<float>().subspan(64);
  CHECK(std::equal(second.begin(), second.end(), single.input.values<float>().begin()));
  CHECK(batcher.collate(alone, 1) == single);
  int changed = 0;  // one in 50 is the same by chance
  for (std::int64_t epoch = 2; epoch < 12; ++epoch)
    changed += batcher.collate(alone, epoch).input != single.input ? 1 : 0;
  CHECK(changed >= 8);
}

TEST_CASE("image batcher: wrong options and samples are explained") {
  const auto make = [](dhp::ImageBatcherOptions options) {
    dhp::ImageBatcher batcher(two_images(), std::move(options));
    return batcher.collate(both, 0);
  };
  CHECK_THROWS_WITH_AS(make({}), Contains("set height, width"), dhp::Error);
  CHECK_THROWS_WITH_AS(make({.height = 2, .width = 2, .channels = 3}),
                       Contains("sample 1: has 1 channels; 3 would be right"), dhp::Error);
  CHECK_THROWS_AS(make({.height = 2, .width = 2, .channels = 1, .dtype = DType::i32}), dhp::Error);
  CHECK_THROWS_AS(make({.height = 2, .width = 2, .channels = 1, .mean = {1, 2}}), dhp::Error);
  CHECK_THROWS_AS(make({.height = 2, .width = 2, .channels = 1, .deviation = {0}}), dhp::Error);
}

TEST_CASE("image batcher: channel_statistics gives the mean and deviation of each channel") {
  const auto statistics =
      dhp::channel_statistics(images({2, 1, 1, 2}, {0, 51, 255, 51}, {0, 0}), 100);
  CHECK(statistics.mean[0] == Approx(0.5));
  CHECK(statistics.mean[1] == Approx(0.2));
  CHECK(statistics.deviation[0] == Approx(0.5));
  CHECK(statistics.deviation[1] == 1);
}

// A dataset with readable labels but unreadable images.
struct LabelsAlone {
  using Sample = dhp::LabeledImage;
  [[nodiscard]] std::int64_t size() const { return 10; }
  [[nodiscard]] Sample get(std::int64_t) const { dhp::fail("read"); }
  [[nodiscard]] std::int32_t label(std::int64_t index) const { return static_cast<int>(index) % 5; }
};

TEST_CASE("image batcher: labels_only() reads no image, also of a slice, shuffle or part") {
  const auto labels_of = [](auto data) {
    const dhp::ImageBatcher batcher(data, {.height = 2, .width = 3});
    CHECK_THROWS_AS((void)batcher.collate(both, 0), dhp::Error);
    const auto batch = batcher.labels_only().collate(both, 0);
    CHECK(batch.input == dhp::HostArray(DType::f32, {2, 2, 3, 3}));
    const auto values = batch.side.front().second.template values<std::int32_t>();
    CHECK(values[0] == data.label(1));
    CHECK(values[1] == data.label(0));
    return std::vector<std::int32_t>(values.begin(), values.end());
  };
  CHECK(labels_of(LabelsAlone{}) == std::vector<std::int32_t>{1, 0});
  CHECK(labels_of(dhp::slice(LabelsAlone{}, 3, 6)) == std::vector<std::int32_t>{4, 3});
  labels_of(dhp::shuffled(LabelsAlone{}, 1, 0));
  CHECK(labels_of(dhp::detail::Reordered(
            LabelsAlone{}, dhp::detail::EvenOrder{LabelsAlone{}.size(), 2, 0, true})) ==
        std::vector<std::int32_t>{0, 0});
  CHECK(labels_of(dhp::detail::Reordered(
            LabelsAlone{}, dhp::detail::EvenOrder{LabelsAlone{}.size(), 2, 0, false})) ==
        std::vector<std::int32_t>{2, 1});
  // If the dataset cannot read labels alone, it reads images as before.
  const dhp::ImageBatcher whole(two_images(), {.height = 2, .width = 2, .channels = 1});
  CHECK(whole.labels_only().collate(both, 0) == whole.collate(both, 0));
}

}  // namespace
