// Owners and views: write access, and refusals.
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>
#include <tests/support/tensors.hpp>

namespace {

static_assert(!std::is_copy_constructible_v<Tensor<Cpu>>);
static_assert(std::is_nothrow_move_constructible_v<Tensor<Cpu>>);
static_assert(!std::is_convertible_v<ConstView<Cpu>, View<Cpu>>);

Tensor<Cpu> counting(Cpu& dev, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = static_cast<float>(at);
  return Tensor<Cpu>::from_host(dev, shape, values);
}

TEST_CASE("tensor: values are copied from the host and back") {
  Cpu dev;
  const auto x = counting(dev, {2, 3});
  CHECK(x.dtype() == DType::f32);
  CHECK(x.rows() == 2);
  CHECK(x.columns() == 3);
  CHECK(x.size_bytes() == 24);
  CHECK(x.to_host<float>(dev) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(Tensor<Cpu>::zeros(dev, DType::i64, {2}).to_host<std::int64_t>(dev) ==
        std::vector<std::int64_t>{0, 0});
  CHECK(message_of([&] { (void)x.to_host<double>(dev); }) == "a tensor of f32 was read as f64");
  CHECK(message_of([&] { (void)Tensor<Cpu>::from_host(dev, {3}, std::vector<float>{1}); }) ==
        "a tensor of shape [3] needs 3 values, got 1");
}

TEST_CASE("tensor: a shared one is read-only until it has one owner again") {
  Cpu dev;
  auto x = counting(dev, {4});
  CHECK(x.unique());
  x.mut().data<float>()[0] = 9;
  {
    auto second = x.share();
    CHECK(!x.unique());
    CHECK(second.view().bytes() == x.view().bytes());
    CHECK(message_of([&] { (void)x.mut(); }) ==
          "a shared tensor of shape [4] is read-only: write into a fresh one");
    CHECK(message_of([&] { (void)second.mut(); }) != "no error");
    auto copy = clone(dev, x.view());
    copy.mut().data<float>()[0] = 1;
    CHECK(x.view().data<float>()[0] == 9);
  }
  CHECK(x.unique());
  (void)x.mut();
}

TEST_CASE("tensor: borrowed memory is used in place, and written only if not const") {
  Cpu dev;
  const auto owner = std::make_shared<std::vector<float>>(std::vector<float>{0, 1, 2, 3, 4, 5});
  std::shared_ptr<std::byte> memory(reinterpret_cast<std::byte*>(owner->data()),
                                    [owner](std::byte*) {});
  std::shared_ptr<const std::byte> fixed(memory.get(), [owner](const std::byte*) {});
  Tensor<Cpu> x(std::move(memory), DType::f32, {2, 3});
  CHECK(owner.use_count() == 3);
  x.mut().data<float>()[4] = 9;
  CHECK((*owner)[4] == 9);
  x = Tensor<Cpu>(std::move(fixed), DType::f32, {2, 3});
  CHECK(x.to_host<float>(dev) == *owner);
  auto second = x.share();
  x = Tensor<Cpu>();
  CHECK(!second.unique());
  CHECK(message_of([&] { (void)second.mut(); }) ==
        "a borrowed tensor of shape [2, 3] is read-only: write into a fresh one");
  second = Tensor<Cpu>();
  CHECK(owner.use_count() == 1);
}

TEST_CASE("tensor: column sums stay attached until the elements are written") {
  Cpu dev;
  auto x = Tensor<Cpu>::from_host(dev, {2, 2}, std::vector<float>{1, 2, 3, 4});
  CHECK(x.column_sums().empty());
  x.carry_column_sums(Tensor<Cpu>::from_host(dev, {2, 2}, std::vector<float>{4, 6, 10, 20}));
  auto second = x.share();
  auto moved = std::move(x);
  CHECK(moved.column_sums().data<float>()[3] == 20);
  CHECK(second.column_sums().data<float>()[0] == 4);
  second = {};
  auto wide = std::move(moved).reshape({1, 4});
  CHECK(wide.column_sums().empty());
  wide.carry_column_sums(Tensor<Cpu>::zeros(dev, DType::f32, {2, 4}));
  CHECK_FALSE(wide.column_sums().empty());
  wide.mut().data<float>()[0] = 7;
  CHECK(wide.column_sums().empty());
  CHECK_THROWS(wide.carry_column_sums(Tensor<Cpu>::zeros(dev, DType::f32, {2, 3})));
  CHECK_THROWS(wide.carry_column_sums(Tensor<Cpu>::zeros(dev, DType::f64, {2, 4})));
}

TEST_CASE("tensor: a norm's trace is shared; a gradient's norm sums are not") {
  Cpu dev;
  const auto two = [&] { return Tensor<Cpu>::from_host(dev, {2, 1}, std::vector<float>{7, 9}); };
  auto x = two();
  CHECK(x.norm() == nullptr);
  const auto norm = std::make_shared<const dhp::detail::NormTrace<Cpu>>();
  x.carry_norm(norm);
  auto second = x.share();
  CHECK(second.norm() == norm.get());
  second.drop_norm();
  CHECK(second.norm() == nullptr);
  second = {};
  CHECK(x.norm() == norm.get());
  static_cast<void>(x.mut());
  CHECK(x.norm() == nullptr);

  auto gradient = two();
  gradient.carry_norm_sums(two());
  CHECK_FALSE(gradient.share().has_norm_sums());
  auto moved = std::move(gradient);
  CHECK(moved.has_norm_sums());
  CHECK(moved.take_norm_sums().to_host<float>(dev) == std::vector<float>{7, 9});
  CHECK_FALSE(moved.has_norm_sums());
  moved.carry_norm_sums(two());
  static_cast<void>(moved.mut());
  CHECK_FALSE(moved.has_norm_sums());
}

TEST_CASE("tensor: a default and a moved-from tensor have no elements") {
  Cpu dev;
  Tensor<Cpu> none;
  CHECK(none.empty());
  CHECK(!none);
  CHECK(none.count() == 0);
  CHECK(none.size_bytes() == 0);
  CHECK(none.mut().count() == 0);
  auto x = counting(dev, {2});
  const auto moved = std::move(x);
  CHECK(moved.count() == 2);
  CHECK(x.count() == 0);  // NOLINT: that is the question
  CHECK(x.shape() == Shape{});
  auto y = counting(dev, {2});
  y = std::move(x);
  CHECK(y.shape() == Shape{});
}

TEST_CASE("view: reshapes and slices of dim 0 share the elements") {
  Cpu dev;
  auto x = counting(dev, {4, 3});
  const ConstView<Cpu> view = x;
  CHECK(view.as({2, 6}).data<float>()[6] == 6);
  CHECK(message_of([&] { (void)view.as({5}); }) == "cannot view [4, 3] as [5]");
  const auto middle = view.slice(1, 3);
  CHECK(middle.shape() == Shape{2, 3});
  CHECK(middle.data<float>()[0] == 3);
  CHECK(view.slice(4, 4).count() == 0);
  CHECK(message_of([&] { (void)view.slice(3, 5); }) == "no slice [3, 5) in [4, 3]");
  CHECK(message_of([&] { (void)view.slice(2, 1); }) == "no slice [2, 1) in [4, 3]");
  x.mut().slice(1, 2).data<float>()[0] = -1;
  CHECK(x.view().data<float>()[3] == -1);
  CHECK(message_of([&] { (void)std::move(x).reshape({7}); }) == "cannot reshape [4, 3] to [7]");
  CHECK(std::move(x).reshape({12}).shape() == Shape{12});
}

TEST_CASE_TEMPLATE("view: slices are read as their own type", T, double, bf16, std::uint8_t) {
  Cpu dev;
  std::vector<T> values;
  for (int at = 0; at < 24; ++at) values.push_back(static_cast<T>(static_cast<float>(at)));
  const auto x = Tensor<Cpu>::from_host(dev, {4, 3, 2}, values);
  const auto last = x.view().slice(3, 4);
  CHECK(last.shape() == Shape{1, 3, 2});
  CHECK(last.size_bytes() == 6 * sizeof(T));
  CHECK(static_cast<float>(last.template data<T>()[5]) == 23);
  CHECK(message_of([&] { (void)last.template data<float>(); }) ==
        "a tensor of " + to_text(dtype_of<T>()) + " was read as f32");
  CHECK(message_of([&] { (void)ConstView<Cpu>(nullptr, DType::f32, {}).slice(0, 0); }) ==
        "no slice [0, 0) in []");
}

}  // namespace
