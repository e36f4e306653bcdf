// Fields from .npy: values and labels arrive as they were written.
#include <dhp/data/field.hpp>

#include "damage.hpp"

namespace {

using dhp_test::Folder;

TEST_CASE("field: f4 and f8 to a batch of any floating type") {
  const Folder folder;
  const auto labels =
      folder.write("l.npy", dhp::npy_bytes<std::int64_t>({2}, std::vector<std::int64_t>{2, 0}));
  const auto run = [&]<class T>(dhp::Tag<T>) {
    const auto path =
        folder.write("f.npy", dhp::npy_bytes<T>({2, 3, 1}, std::vector<T>{1, 2, 3, 4, 5, T(0.1)}));
    const auto data = dhp::load_npy_fields(path, labels, 3);
    CHECK(data.shape() == dhp::Shape{3, 1});
    const dhp::FieldBatcher batcher(data, dhp::DType::f64);
    const std::vector<std::int64_t> both{1, 0};
    const auto batch = batcher.collate(both, 0);
    CHECK(batch.input ==
          dhp::HostArray({2, 3, 1}, std::vector<double>{4, 5, double(T(0.1)), 1, 2, 3}));
    CHECK(batch.side[0].second == dhp::HostArray({2}, std::vector<std::int32_t>{0, 2}));
    CHECK(dhp::FieldBatcher(data, dhp::DType::bf16).collate(both, 0).input.dtype() ==
          dhp::DType::bf16);
  };
  run(dhp::Tag<float>{});
  run(dhp::Tag<double>{});
}

TEST_CASE("field: what does not fit is named") {
  const Folder folder;
  const auto labels =
      folder.write("l.npy", dhp::npy_bytes<std::int32_t>({3}, std::vector<std::int32_t>{2, 0, 1}));
  const auto fields =
      folder.write("f.npy", dhp::npy_bytes<float>({2, 1}, std::vector<float>{1, 2}));
  CHECK_THROWS_WITH_AS((void)dhp::load_npy_fields(fields, labels, 3),
                       doctest::Contains("f.npy has 2 samples, but"), dhp::Error);
  CHECK_THROWS_WITH_AS((void)dhp::load_npy_fields(labels, labels, 3),
                       doctest::Contains("f4 or f8 would be right"), dhp::Error);
}

}  // namespace
