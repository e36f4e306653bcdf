// Softmax: plain loops in double, finite differences, rows far from zero, masked and broken rows.
#include <dhp/cpu/softmax.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace dhp;
using namespace tests;

namespace {

struct Run {
  std::vector<double> y, dx;
  bool operator==(const Run&) const = default;
};

template <class T>
Run run(int threads, const Shape& shape) {
  Cpu dev({.threads = threads});
  const auto x = random_tensor<T>(dev, shape, 1);
  const auto dy = random_tensor<T>(dev, shape, 2);
  Tensor<Cpu> y(dev, dtype_of<T>(), shape), dx(dev, dtype_of<T>(), shape);
  softmax_forward(dev, x, y.mut());
  softmax_backward(dev, y, dy, dx.mut());
  return {widened(y), widened(dx)};
}

// Plain loops; the gradient starts from the y that was stored.
template <class T>
Run expected(const Shape& shape, const std::vector<double>& stored) {
  Cpu dev;
  const auto x = widened(random_tensor<T>(dev, shape, 1));
  const auto dy = widened(random_tensor<T>(dev, shape, 2));
  const auto columns = static_cast<std::size_t>(shape.back());
  Run out{x, x};
  for (std::size_t first = 0; first < x.size(); first += columns) {
    double sum = 0, inner = 0;
    for (auto at = first; at < first + columns; ++at) sum += std::exp(x[at]);
    for (auto at = first; at < first + columns; ++at) inner += stored[at] * dy[at];
    for (auto at = first; at < first + columns; ++at) {
      out.y[at] = std::exp(x[at]) / sum;
      out.dx[at] = stored[at] * (dy[at] - inner);
    }
  }
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("against plain loops", T, double, float, bf16, f16) {
  const double close = std::is_same_v<T, double> ? 1e-14 : is_16_bit<T> ? 4e-3 : 1e-6;
  for (const auto& shape : {Shape{0, 4}, {3, 1}, {17, 16}, {2, 9, 33}, {1, 1000}}) {
    CAPTURE(to_text(shape));
    const Run got = run<T>(2, shape);
    const Run right = expected<T>(shape, got.y);
    CHECK(distance(got.y, right.y) < close);
    CHECK(distance(got.dx, right.dx) < close);
  }
}

TEST_CASE_TEMPLATE("threads change no bit", T, double, float, bf16, f16) {
  const Run one = run<T>(1, {300, 45});
  CHECK(run<T>(2, {300, 45}) == one);
  CHECK(run<T>(3, {300, 45}) == one);
}

TEST_CASE("the gradient by finite differences") {
  Cpu dev;
  const Shape shape{3, 7};
  auto x = random_tensor<double>(dev, shape, 1);
  const auto dy = random_tensor<double>(dev, shape, 2);
  Tensor<Cpu> y(dev, DType::f64, shape), dx(dev, DType::f64, shape);
  const auto loss = [&] {
    softmax_forward(dev, x, y.mut());
    return weighted_sum(y, dy);
  };
  loss();
  softmax_backward(dev, y, dy, dx.mut());
  CHECK(distance(widened(dx), numerical_gradient(x, loss)) < 1e-6);
}

TEST_CASE_TEMPLATE("in place is the same", T, double, float, bf16, f16) {
  Cpu dev;
  const Shape shape{20, 35};
  auto x = random_tensor<T>(dev, shape, 1);
  auto dy = random_tensor<T>(dev, shape, 2);
  softmax_forward(dev, x, x.mut());
  softmax_backward(dev, x, dy, dy.mut());
  CHECK(Run{widened(x), widened(dy)} == run<T>(1, shape));
}

TEST_CASE_TEMPLATE("the largest value may lie anywhere and be large", T, double, float) {
  Cpu dev;
  const std::int64_t columns = 37;  // two full groups of lanes, and a rest
  for (std::int64_t place = 0; place < columns; ++place) {
    std::vector<T> values(static_cast<std::size_t>(columns), T(5000));
    values[static_cast<std::size_t>(place)] = T(6000);
    const auto x = Tensor<Cpu>::from_host(dev, {1, columns}, values);
    Tensor<Cpu> y(dev, dtype_of<T>(), {1, columns});
    softmax_forward(dev, x, y.mut());
    std::vector<double> right(static_cast<std::size_t>(columns), 0);
    right[static_cast<std::size_t>(place)] = 1;
    CHECK(widened(y) == right);
  }
}

TEST_CASE("minus infinity is masked; a row that is not finite spoils no other") {
  Cpu dev;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1, -infinity, 1, 0, nan, 0, 0, 0, nan, infinity, 0, 0, 2, 2, 2};
  const auto x = Tensor<Cpu>::from_host(dev, {5, 3}, values);
  Tensor<Cpu> y(dev, DType::f32, {5, 3});
  softmax_forward(dev, x, y.mut());
  const auto got = widened(y);
  CHECK(std::vector<double>(got.begin(), got.begin() + 3) == std::vector<double>{0.5, 0, 0.5});
  for (const std::size_t row : {1, 2, 3}) CHECK(std::isnan(got[3 * row]));
  CHECK(got[12] == doctest::Approx(1.0 / 3));
}

TEST_CASE("what does not fit is refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  auto other = random_tensor<float>(dev, {4, 4}, 1);
  auto half = random_tensor<bf16>(dev, {3, 4}, 1);
  CHECK(message_of([&] { softmax_forward(dev, x, other.mut()); }) ==
        "softmax: [3, 4] of f32 does not fit [4, 4] of f32");
  CHECK(message_of([&] { softmax_backward(dev, x, half, other.mut()); }) ==
        "softmax: the gradient [3, 4] of bf16 does not fit [3, 4] of f32");
  CHECK(message_of([&] { softmax_backward(dev, x, x, half.mut()); }) ==
        "softmax: the gradient [3, 4] of bf16 does not fit [3, 4] of f32");
  const auto integers = Tensor<Cpu>::zeros(dev, DType::i32, {3, 4});
  auto also = Tensor<Cpu>::zeros(dev, DType::i32, {3, 4});
  CHECK(message_of([&] { softmax_forward(dev, integers, also.mut()); }) ==
        "expected a floating-point tensor, got i32");
}
