// Layer normalisation: plain loops in double, finite differences, large means, odd widths.
#include <dhp/cpu/layer_norm.hpp>
#include <dhp/cpu/reduce.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

struct Run {
  std::vector<double> y, mean, inv_std, dx, dgamma;
  bool operator==(const Run&) const = default;
};

template <class T>
Run run(int threads, const Shape& shape, double epsilon) {
  using A = Accumulator<T>;
  Cpu dev({.threads = threads});
  const auto x = random_tensor<T>(dev, shape, 1);
  const auto dy = random_tensor<T>(dev, shape, 2);
  const auto gamma = random_tensor<A>(dev, {shape.back()}, 3);
  const auto beta = random_tensor<A>(dev, {shape.back()}, 4);
  Tensor<Cpu> y(dev, dtype_of<T>(), shape), dx(dev, dtype_of<T>(), shape);
  Tensor<Cpu> mean(dev, dtype_of<A>(), {shape.rows()}), inv_std(dev, dtype_of<A>(), {shape.rows()});
  auto dgamma = random_tensor<A>(dev, {shape.back()}, 5);
  layer_norm_forward(dev, x, gamma, beta, epsilon, y.mut(), mean.mut(), inv_std.mut());
  layer_norm_backward_data(dev, dy, x, gamma, mean, inv_std, dx.mut());
  layer_norm_backward_gamma(dev, dy, x, mean, inv_std, dgamma.mut(), 0.5);
  return {widened(y), widened(mean), widened(inv_std), widened(dx), widened(dgamma)};
}

// The same by plain loops in double, from the rounded inputs.
template <class T>
Run expected(const Shape& shape, double epsilon) {
  using A = Accumulator<T>;
  Cpu dev;
  const auto x = widened(random_tensor<T>(dev, shape, 1));
  const auto dy = widened(random_tensor<T>(dev, shape, 2));
  const auto gamma = widened(random_tensor<A>(dev, {shape.back()}, 3));
  const auto beta = widened(random_tensor<A>(dev, {shape.back()}, 4));
  const auto columns = gamma.size();
  const auto width = static_cast<double>(columns);
  Run out{x, {}, {}, x, widened(random_tensor<A>(dev, {shape.back()}, 5))};
  for (auto& value : out.dgamma) value *= 0.5;
  for (std::size_t r = 0; r < x.size() / columns; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < columns; ++c) mean += x[r * columns + c] / width;
    for (std::size_t c = 0; c < columns; ++c)
      variance += std::pow(x[r * columns + c] - mean, 2) / width;
    const double inv_std = 1 / std::sqrt(variance + epsilon);
    double sum = 0, product = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      const double normal = (x[r * columns + c] - mean) * inv_std;
      out.y[r * columns + c] = normal * gamma[c] + beta[c];
      out.dgamma[c] += dy[r * columns + c] * normal;
      sum += dy[r * columns + c] * gamma[c] / width;
      product += dy[r * columns + c] * gamma[c] * normal / width;
    }
    for (std::size_t c = 0; c < columns; ++c)
      out.dx[r * columns + c] = inv_std * (dy[r * columns + c] * gamma[c] - sum -
                                           (x[r * columns + c] - mean) * inv_std * product);
    out.mean.push_back(mean);
    out.inv_std.push_back(inv_std);
  }
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("all ops against plain loops", T, double, float, bf16, f16) {
  const bool exact = std::is_same_v<T, double>;
  const double sums = exact ? 1e-12 : 1e-4;
  const double elements = exact ? 1e-12 : is_16_bit<T> ? 4e-2 : 1e-5;
  for (const auto& shape : {Shape{0, 4}, {1, 3}, {17, 16}, {2, 9, 33}, {130, 100}}) {
    CAPTURE(to_text(shape));
    const Run got = run<T>(2, shape, 1e-2);
    const Run right = expected<T>(shape, 1e-2);
    CHECK(distance(got.mean, right.mean) < sums);
    CHECK(distance(got.inv_std, right.inv_std) < sums);
    CHECK(distance(got.y, right.y) < elements);
    CHECK(distance(got.dx, right.dx) < elements);
    CHECK(distance(got.dgamma, right.dgamma) < sums);
  }
}

TEST_CASE_TEMPLATE("threads change no bit", T, double, float, bf16, f16) {
  const Run one = run<T>(1, {300, 45}, 1e-12);
  CHECK(run<T>(2, {300, 45}, 1e-12) == one);
  CHECK(run<T>(3, {300, 45}, 1e-12) == one);
}

TEST_CASE("gradients by finite differences") {
  Cpu dev;
  const Shape shape{3, 7};
  auto x = random_tensor<double>(dev, shape, 1);
  auto gamma = random_tensor<double>(dev, {7}, 2);
  auto beta = random_tensor<double>(dev, {7}, 3);
  const auto dy = random_tensor<double>(dev, shape, 4);
  Tensor<Cpu> y(dev, DType::f64, shape), dx(dev, DType::f64, shape);
  Tensor<Cpu> mean(dev, DType::f64, {3}), inv_std(dev, DType::f64, {3});
  Tensor<Cpu> dgamma(dev, DType::f64, {7}), dbeta(dev, DType::f64, {7});
  const auto loss = [&] {
    layer_norm_forward(dev, x, gamma, beta, 1e-5, y.mut(), mean.mut(), inv_std.mut());
    return weighted_sum(y, dy);
  };
  loss();
  layer_norm_backward_data(dev, dy, x, gamma, mean, inv_std, dx.mut());
  layer_norm_backward_gamma(dev, dy, x, mean, inv_std, dgamma.mut(), 0);
  column_sums(dev, dy, dbeta.mut(), 0);
  CHECK(distance(widened(dx), numerical_gradient(x, loss)) < 1e-6);
  CHECK(distance(widened(dgamma), numerical_gradient(gamma, loss)) < 1e-6);
  CHECK(distance(widened(dbeta), numerical_gradient(beta, loss)) < 1e-6);
}

TEST_CASE("a mean far larger than the deviation costs no digits") {
  Cpu dev;
  const std::int64_t columns = 64;
  std::vector<float> values;
  for (std::int64_t c = 0; c < columns; ++c)
    values.push_back(4096.0f + (c % 2 == 0 ? 0.5f : -0.5f));
  const auto x = Tensor<Cpu>::from_host(dev, {1, columns}, values);
  const auto gamma = Tensor<Cpu>::from_host(
      dev, {columns}, std::vector<float>(static_cast<std::size_t>(columns), 1));
  const auto beta = Tensor<Cpu>::zeros(dev, DType::f32, {columns});
  Tensor<Cpu> y(dev, DType::f32, {1, columns}), mean(dev, DType::f32, {1}),
      inv_std(dev, DType::f32, {1});
  layer_norm_forward(dev, x, gamma, beta, 0, y.mut(), mean.mut(), inv_std.mut());
  for (std::int64_t c = 0; c < columns; ++c)
    CHECK(widened(y)[static_cast<std::size_t>(c)] == (c % 2 == 0 ? 1 : -1));
}

TEST_CASE("what does not fit is refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  const auto four = random_tensor<float>(dev, {4}, 2);
  const auto half = random_tensor<bf16>(dev, {4}, 2);
  auto y = random_tensor<float>(dev, {3, 4}, 2);
  auto mean = random_tensor<float>(dev, {3}, 2);
  auto inv_std = random_tensor<float>(dev, {3}, 2);
  CHECK(message_of([&] {
          layer_norm_forward(dev, x, mean, four, 0, y.mut(), mean.mut(), inv_std.mut());
        }) == "layer_norm: the scale [3] of f32 does not fit the columns of [3, 4] of f32");
  CHECK(message_of([&] {
          layer_norm_forward(dev, x, half, four, 0, y.mut(), mean.mut(), inv_std.mut());
        }) == "layer_norm: the scale [4] of bf16 does not fit the columns of [3, 4] of f32");
  CHECK(message_of([&] { layer_norm_backward_data(dev, y, x, four, four, inv_std, y.mut()); }) ==
        "layer_norm: the mean [4] of f32 does not fit the rows of [3, 4] of f32");
  const auto other = random_tensor<bf16>(dev, {3, 4}, 2);
  CHECK(message_of([&] {
          layer_norm_backward_data(dev, other, x, four, mean, inv_std, y.mut());
        }) == "layer_norm: the gradient [3, 4] of bf16 does not fit [3, 4] of f32");
}
