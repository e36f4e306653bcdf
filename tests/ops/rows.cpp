// Rows and columns: scatter after gather is the identity, repeated rows are added, indices are checked.
#include <dhp/cpu/rows.hpp>
#include <tests/support/tensors.hpp>

TEST_CASE_TEMPLATE("rows: copy_columns cuts and joins any rank", T, double, float, bf16, f16) {
  Cpu dev({.threads = 3});
  const auto x = random_tensor<T>(dev, {2, 3, 300, 7}, 1);
  Tensor<Cpu> left(dev, dtype_of<T>(), {1800, 2});
  Tensor<Cpu> right(dev, dtype_of<T>(), {1800, 5});
  copy_columns(dev, x, 0, left.mut(), 0, 2);
  copy_columns(dev, x, 2, right.mut(), 0, 5);
  CHECK(widened(left)[3] == widened(x)[8]);
  auto y = Tensor<Cpu>::zeros(dev, dtype_of<T>(), x.shape());
  copy_columns(dev, right, 0, y.mut(), 2, 5);
  copy_columns(dev, left, 0, y.mut(), 0, 2);
  CHECK(widened(y) == widened(x));
}

TEST_CASE_TEMPLATE("rows: scatter_add_rows undoes gather_rows", T, double, float, bf16, f16) {
  for (const int threads : {1, 3}) {
    Cpu dev({.threads = threads});
    const std::int64_t columns = 131;
    const auto x = random_tensor<T>(dev, {80, columns}, 1);
    std::vector<std::int32_t> order(80);
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = static_cast<std::int32_t>(i * 37 % order.size());  // a permutation
    const auto index = Tensor<Cpu>::from_host(dev, {80}, order);
    Tensor<Cpu> y(dev, dtype_of<T>(), {80, columns});
    gather_rows(dev, x, index, y.mut());
    CHECK(widened(y)[static_cast<std::size_t>(columns)] ==
          widened(x)[static_cast<std::size_t>(37 * columns)]);
    auto back = Tensor<Cpu>::zeros(dev, dtype_of<T>(), x.shape());
    scatter_add_rows(dev, y, index, back.mut());
    CHECK(widened(back) == widened(x));
  }
}

TEST_CASE("rows: scatter_add_rows adds repeated rows in order to the old values") {
  Cpu dev({.threads = 2});
  // In this order the first two terms cancel; in any other order the 1 is lost.
  const auto dy = Tensor<Cpu>::from_host(dev, {3, 1}, std::vector<float>{1e30f, -1e30f, 1.0f});
  const auto index = Tensor<Cpu>::from_host(dev, {3}, std::vector<std::int32_t>{1, 1, 1});
  auto dx = Tensor<Cpu>::from_host(dev, {2, 1}, std::vector<float>{5.0f, 0.0f});
  scatter_add_rows(dev, dy, index, dx.mut());
  CHECK(dx.to_host<float>(dev) == std::vector<float>{5, 1});
}

TEST_CASE("rows: operands that do not fit are refused, and nothing is written") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  auto y = Tensor<Cpu>::zeros(dev, DType::f32, {2, 4});
  const auto bad = Tensor<Cpu>::from_host(dev, {2}, std::vector<std::int32_t>{1, 3});
  const auto negative = Tensor<Cpu>::from_host(dev, {2}, std::vector<std::int32_t>{0, -1});
  CHECK(message_of([&] { gather_rows(dev, x, bad, y.mut()); }) ==
        "gather_rows: row index 3 is not among 3 rows");
  CHECK(message_of([&] { gather_rows(dev, x, negative, y.mut()); }) ==
        "gather_rows: row index -1 is not among 3 rows");
  auto dx = Tensor<Cpu>::zeros(dev, DType::f32, {3, 4});
  const auto dy = random_tensor<float>(dev, {2, 4}, 2);
  CHECK(message_of([&] { scatter_add_rows(dev, dy, bad, dx.mut()); }) ==
        "scatter_add_rows: row index 3 is not among 3 rows");
  CHECK(widened(dx) == std::vector<double>(12, 0.0));
  CHECK(message_of([&] { copy_columns(dev, x, 2, dx.mut(), 0, 3); }) ==
        "copy_columns: 3 columns from 2 of [3, 4] to 0 of [3, 4]");
  CHECK(message_of([&] { copy_columns(dev, x, 2, dx.mut(), 0, -1); }) ==
        "copy_columns: -1 columns from 2 of [3, 4] to 0 of [3, 4]");
}
