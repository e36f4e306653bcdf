// Eigen maps of tensors, and tensors over Eigen's memory: same addresses and elements, or a refusal.
#include <dhp/eigen.hpp>
#include <tests/support/tensors.hpp>

namespace {

// Returns 0, 1, 2, ... in memory order.
template <class T>
Tensor<Cpu> counting(Cpu& dev, const Shape& shape) {
  std::vector<T> values;
  for (std::int64_t at = 0; at < shape.count(); ++at)
    values.push_back(static_cast<T>(static_cast<float>(at)));
  return Tensor<Cpu>::from_host(dev, shape, values);
}
template <class M>
M counting_matrix(Eigen::Index rows, Eigen::Index columns) {
  M result(rows, columns);
  for (Eigen::Index at = 0; at < result.size(); ++at)
    result.data()[at] = static_cast<typename M::Scalar>(static_cast<float>(at));
  return result;
}
std::vector<double> counted(std::size_t count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}
template <class A, class B>
bool same_address(const A* here, const B* there) {
  return reinterpret_cast<std::uintptr_t>(here) == reinterpret_cast<std::uintptr_t>(there);
}

using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

}  // namespace

TEST_CASE_TEMPLATE("eigen: a tensor is mapped with a sample per row or per column", T, double,
                   float, bf16, f16) {
  Cpu dev;
  auto x = counting<T>(dev, {4, 3});
  const auto rows = eigen::rows_of<T>(x);
  const auto columns = eigen::columns_of<T>(x);
  CHECK(same_address(rows.data(), x.view().bytes()));
  CHECK(same_address(columns.data(), x.view().bytes()));
  CHECK(rows.rows() == 4);
  CHECK(columns.rows() == 3);
  for (int sample = 0; sample < 4; ++sample)
    for (int feature = 0; feature < 3; ++feature) {
      CHECK(static_cast<float>(rows(sample, feature)) == static_cast<float>(3 * sample + feature));
      CHECK(static_cast<float>(columns(feature, sample)) ==
            static_cast<float>(rows(sample, feature)));
    }
  // Writes are visible on both sides.
  eigen::rows_of<T>(x.mut())(1, 2) = static_cast<eigen::Scalar<T>>(50.0f);
  CHECK(widened(x)[5] == 50);
  x.mut().template data<T>()[5] = static_cast<T>(60.0f);
  CHECK(static_cast<float>(rows(1, 2)) == 60);
  eigen::columns_of<T>(x.mut()) *= static_cast<eigen::Scalar<T>>(0.5f);
  CHECK(widened(x)[5] == 30);
}

TEST_CASE("eigen: a tensor of more dims is mapped as rows or as an Eigen::Tensor") {
  Cpu dev;
  auto x = counting<float>(dev, {2, 3, 4, 5});
  CHECK(eigen::rows_of<float>(x).rows() == 24);
  CHECK(eigen::rows_of<float>(x)(7, 2) == 37);
  const auto image = eigen::tensor_of<float, 4>(x);
  CHECK(same_address(image.data(), x.view().bytes()));
  CHECK(image(1, 2, 3, 4) == 119);
  CHECK(image(1, 0, 2, 3) == 73);
  eigen::tensor_of<float, 4>(x.mut()).setConstant(2);
  CHECK(widened(x)[73] == 2);
  const auto half = counting<f16>(dev, {2, 3, 2});
  CHECK(static_cast<float>(eigen::tensor_of<f16, 3>(half)(1, 2, 0)) == 10);
  // A slice is mapped at its address, whatever the alignment.
  const auto last = x.view().slice(1, 2);
  CHECK(same_address(eigen::rows_of<float>(last).data(), last.bytes()));
  const auto bias = counting<double>(dev, {7});
  CHECK(eigen::columns_of<double>(bias).cols() == 1);
  CHECK(eigen::columns_of<double>(bias)(6, 0) == 6);
}

TEST_CASE("eigen: tensors that cannot be mapped are refused") {
  Cpu dev;
  const auto x = counting<float>(dev, {4, 3});
  static_assert(std::is_const_v<std::remove_pointer_t<decltype(eigen::rows_of<float>(x).data())>>);
  CHECK(message_of([&] { (void)eigen::rows_of<double>(x); }) == "a tensor of f32 was read as f64");
  CHECK(message_of([&] { (void)eigen::tensor_of<float, 3>(x); }) ==
        "tensor_of: a tensor of shape [4, 3] has 2 dims, not 3");
  CHECK(message_of([&] { (void)eigen::rows_of<float>(ConstView<Cpu>()); }) ==
        "Eigen cannot map an empty tensor: map one that has memory and at least one dim");
  const auto scalar = counting<float>(dev, {});
  CHECK(message_of([&] { (void)eigen::columns_of<float>(scalar); }) ==
        "Eigen cannot map a tensor without a dim: map one that has memory and at least one dim");
}

TEST_CASE_TEMPLATE("eigen: one observation per column makes a tensor [observations, features]", S,
                   double, float, Eigen::bfloat16, Eigen::half) {
  using M = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic>;
  auto matrix = counting_matrix<M>(3, 4);
  auto x = eigen::borrow(matrix);
  CHECK(x.dtype() == dtype_of<eigen::Element<S>>());
  CHECK(x.shape() == Shape{4, 3});
  CHECK(same_address(x.view().bytes(), matrix.data()));
  CHECK(widened(x) == counted(12));
  CHECK(eigen::columns_of<eigen::Element<S>>(x) == matrix);
  matrix(2, 1) = static_cast<S>(50.0f);
  CHECK(widened(x)[5] == 50);
  x.mut().template data<eigen::Element<S>>()[5] = static_cast<eigen::Element<S>>(60.0f);
  CHECK(static_cast<float>(matrix(2, 1)) == 60);
}

TEST_CASE("eigen: row-major, fixed-size and vector matrices are borrowed") {
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto check_borrow = [](const auto& matrix, const Shape& shape) {
    const auto x = eigen::borrow(matrix);
    CHECK(x.shape() == shape);
    CHECK(same_address(x.view().bytes(), matrix.data()));
    CHECK(widened(x) == counted(static_cast<std::size_t>(shape.count())));
  };
  check_borrow(counting_matrix<RowMajor>(3, 4), {3, 4});
  check_borrow(counting_matrix<Eigen::VectorXf>(5, 1), {5});
  check_borrow(counting_matrix<Eigen::RowVectorXd>(1, 5), {5});
  check_borrow(counting_matrix<Eigen::Matrix<double, 3, 2>>(3, 2), {2, 3});
  check_borrow(counting_matrix<Eigen::ArrayXXf>(3, 4), {4, 3});
}

TEST_CASE("eigen: contiguous blocks, maps and transposes are borrowed in place") {
  auto matrix = counting_matrix<Eigen::MatrixXf>(3, 8);
  // Whole columns are whole observations, so they are contiguous.
  auto middle = eigen::borrow(matrix.middleCols(2, 4));
  CHECK(middle.shape() == Shape{4, 3});
  CHECK(same_address(middle.view().bytes(), &matrix(0, 2)));
  middle.mut().data<float>()[0] = 90;
  CHECK(matrix(0, 2) == 90);
  // The transpose of a column-major matrix is row-major and gives the same tensor.
  CHECK(eigen::borrow(matrix.transpose()).shape() == Shape{8, 3});
  CHECK(eigen::borrow(matrix.col(1)).shape() == Shape{3});
  CHECK(eigen::borrow(Eigen::Map<Eigen::MatrixXf>(matrix.data(), 4, 6)).shape() == Shape{6, 4});
  Eigen::Ref<Eigen::MatrixXf> ref = matrix;
  CHECK(same_address(eigen::borrow(ref).view().bytes(), matrix.data()));
  // The stride of a single column does not matter.
  CHECK(eigen::borrow(matrix.block(1, 1, 2, 1)).shape() == Shape{1, 2});
}

TEST_CASE("eigen: an Eigen::Tensor keeps its dims if row-major, otherwise they are reversed") {
  Eigen::Tensor<float, 3, Eigen::RowMajor> rows(2, 3, 4);
  Eigen::Tensor<float, 3> columns(2, 3, 4);
  for (int at = 0; at < 24; ++at) rows.data()[at] = columns.data()[at] = static_cast<float>(at);
  const auto x = eigen::borrow(rows);
  const auto y = eigen::borrow(columns);
  CHECK(x.shape() == Shape{2, 3, 4});
  CHECK(y.shape() == Shape{4, 3, 2});
  CHECK(same_address(y.view().bytes(), columns.data()));
  const auto there = eigen::tensor_of<float, 3>(x);
  const auto back = eigen::tensor_of<float, 3>(y);
  CHECK(there(1, 2, 3) == rows(1, 2, 3));
  CHECK(back(3, 2, 1) == columns(1, 2, 3));
  const Eigen::TensorMap<Eigen::Tensor<float, 2, Eigen::RowMajor>> map(rows.data(), 6, 4);
  CHECK(eigen::borrow(map).shape() == Shape{6, 4});
}

TEST_CASE("eigen: unsuitable strides are refused with a sentence") {
  auto matrix = counting_matrix<Eigen::MatrixXf>(5, 4);
  CHECK(message_of([&] { (void)eigen::borrow(matrix.topRows(3)); }) ==
        "borrow: a 3 x 4 matrix with inner stride 1 and outer stride 5 would be scrambled as a "
        "tensor [4, 3], which needs strides 1 and 3; adopt() a copy of it, its eval()");
  CHECK(message_of([&] {
          (void)eigen::borrow(matrix.row(1));
        }).starts_with("borrow: a 1 x 4 matrix with inner stride 5 and outer stride"));
  const Eigen::Map<const Eigen::MatrixXf, 0, Strides> every_second(matrix.data(), 2, 4,
                                                                   Strides(5, 2));
  CHECK(message_of([&] {
          (void)eigen::borrow(every_second);
        }).starts_with("borrow: a 2 x 4 matrix with inner stride 2 and outer stride 5"));
  const Eigen::Map<Eigen::MatrixXf, 0, Strides> overlapping(matrix.data(), 3, 4, Strides(2, 1));
  CHECK(message_of([&] { (void)eigen::borrow(overlapping); }) != "no error");
  // This follows the advice of the error.
  const auto copied = eigen::adopt(matrix.topRows(3).eval());
  CHECK(copied.shape() == Shape{4, 3});
  CHECK(widened(copied)[3] == 5);
}

TEST_CASE("eigen: a const matrix gives a read-only tensor") {
  const auto matrix = counting_matrix<Eigen::MatrixXf>(3, 4);
  auto x = eigen::borrow(matrix);
  CHECK(!x.unique());
  CHECK(message_of([&] { (void)x.mut(); }) ==
        "a borrowed tensor of shape [4, 3] is read-only: write into a fresh one");
  const auto moved = std::move(x).reshape({12});
  CHECK(!moved.unique());
}

TEST_CASE("eigen: an adopted matrix lives as long as its tensors") {
  auto matrix = counting_matrix<Eigen::MatrixXd>(3, 4);
  const auto* const address = matrix.data();
  auto x = eigen::adopt(std::move(matrix));
  CHECK(same_address(x.view().bytes(), address));
  CHECK(x.unique());
  CHECK(widened(x) == counted(12));

  auto shared = std::make_shared<Eigen::MatrixXd>(counting_matrix<Eigen::MatrixXd>(2, 2));
  const std::weak_ptr<Eigen::MatrixXd> watch = shared;
  auto y = eigen::adopt(shared);
  (void)y.mut();  // the program's pointer does not make y shared
  {
    const auto z = y.share();
    shared = nullptr;
    y = Tensor<Cpu>();
    CHECK(!watch.expired());
    CHECK(widened(z) == counted(4));
  }
  CHECK(watch.expired());
  CHECK(!eigen::adopt(std::make_shared<const Eigen::MatrixXd>(2, 2)).unique());
}

TEST_CASE("eigen: a map without memory is refused, and a tensor of fixed size is adopted") {
  CHECK(has(message_of([] { (void)eigen::borrow(Eigen::Map<Eigen::MatrixXf>(nullptr, 3, 4)); }),
            "borrow: a matrix for a tensor [4, 3] has no memory; a map needs the address"));
  Eigen::TensorFixedSize<float, Eigen::Sizes<2, 3>, Eigen::RowMajor> fixed;
  fixed.setConstant(2);
  CHECK(eigen::borrow(fixed).shape() == Shape{2, 3});
  CHECK(widened(eigen::adopt(std::move(fixed))) == std::vector<double>(6, 2));
}

TEST_CASE("eigen: an empty matrix gives an empty tensor") {
  Eigen::MatrixXf matrix(3, 0);
  const auto x = eigen::borrow(matrix);
  CHECK(!x.empty());
  CHECK(x.shape() == Shape{0, 3});
  CHECK(eigen::columns_of<float>(x).cols() == 0);
}
