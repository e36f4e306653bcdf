// Sets of images of one size, from pairs of IDX or .npy files.
#include <dhp/data/image.hpp>

#include "damage.hpp"
#include "npy_bytes.hpp"

namespace {

dhp::Bytes idx(std::vector<int> dims, int values) {
  dhp::Bytes result{std::byte{0}, std::byte{0}, std::byte{8}, static_cast<std::byte>(dims.size())};
  for (const int dim : dims) {
    result.resize(result.size() + 3);
    result.push_back(static_cast<std::byte>(dim));
  }
  for (int value = 0; value < values; ++value) result.push_back(static_cast<std::byte>(value));
  return result;
}

static_assert(dhp::Dataset<dhp::ImageArray>);

TEST_CASE("image: a pair of IDX files is read") {
  const Folder folder;
  const auto images = folder.write("images", idx({3, 2, 2}, 12));
  const auto labels = folder.write("labels", idx({3}, 3));
  const auto data = dhp::load_idx_images(images, labels, 3);
  CHECK(data.size() == 3);
  CHECK(data.get(1).label == 1);
  CHECK(data.get(1).image == dhp::Image{2, 2, 1, {4, 5, 6, 7}});
  CHECK_THROWS_WITH_AS((void)dhp::load_idx_images(images, labels, 2),
                       Contains("labels: label 2 is 2, not in [0, 2); --classes says"), dhp::Error);
  const auto fewer = folder.write("fewer", idx({2}, 2));
  CHECK_THROWS_WITH_AS((void)dhp::load_idx_images(images, fewer, 3),
                       Contains("images has 3 samples, but"), dhp::Error);
  CHECK_THROWS_WITH_AS((void)dhp::load_idx_images(labels, images, 3),
                       Contains("[N] would be right"), dhp::Error);
  CHECK_THROWS_AS((void)data.get(3), dhp::Error);
}

TEST_CASE("image: a pair of .npy files is read, with any integer type of labels") {
  const Folder folder;
  const auto images = folder.write(
      "i.npy", npy_bytes<std::uint8_t>(
                   {2, 1, 6, 1}, std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  const auto check_labels = [&]<class T>(dhp::TypeTag<T>) {
    const auto labels = folder.write("l.npy", npy_bytes<T>({2}, std::vector<T>{3, 0}));
    const auto data = dhp::load_npy_images(images, labels, 4);
    CHECK(data.get(0).label == 3);
    CHECK(data.get(1).image == dhp::Image{1, 6, 1, {7, 8, 9, 10, 11, 12}});
  };
  check_labels(dhp::TypeTag<std::uint8_t>{});
  check_labels(dhp::TypeTag<std::int32_t>{});
  check_labels(dhp::TypeTag<std::int64_t>{});
  std::string large;
  for (const std::int64_t label : {std::int64_t{-1}, (std::int64_t{1} << 32) + 1}) {
    large =
        folder.write("l.npy", npy_bytes<std::int64_t>({2}, std::vector{label, std::int64_t{0}}));
    CHECK_THROWS_WITH_AS((void)dhp::load_npy_images(images, large, 4), Contains("label 0"),
                         dhp::Error);
  }
  const auto none = folder.write("none.npy", npy_bytes<std::uint8_t>({0, 2, 2}, {}));
  CHECK_THROWS_WITH_AS((void)dhp::load_npy_images(none, large, 4),
                       Contains("none.npy: holds no sample"), dhp::Error);
  const auto real = folder.write("f.npy", npy_bytes<float>({2}, std::vector<float>{1, 0}));
  CHECK_THROWS_WITH_AS((void)dhp::load_npy_images(images, real, 4), Contains("integer type"),
                       dhp::Error);
  CHECK_THROWS_WITH_AS((void)dhp::load_npy_images(real, large, 4),
                       Contains("would be right: (255 * images).round()"), dhp::Error);
  const auto first =
      folder.write("c.npy", npy_bytes<std::uint8_t>({1, 3, 5, 5}, std::vector<std::uint8_t>(75)));
  CHECK_THROWS_WITH_AS((void)dhp::load_npy_images(first, large, 4),
                       Contains("numpy.transpose(images, (0, 2, 3, 1))"), dhp::Error);
}

}  // namespace
