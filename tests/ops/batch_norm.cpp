// Batch normalisation: plain loops in double, finite differences through the statistics, sums in parts.
#include <dhp/cpu/batch_norm.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

constexpr double epsilon = 1e-5;

// Vectors [C] in the accumulation type of T.
struct Statistics {
  Statistics(Cpu& dev, DType type, std::int64_t columns)
      : mean(dev, type, {columns}), inv_std(dev, type, {columns}) {}
  Tensor<Cpu> mean, inv_std;
};

template <class A>
void set(Tensor<Cpu>& vector, const std::vector<double>& values) {
  A* to = vector.mut().template data<A>();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<A>(values[i]);
}

// Mean and 1 / sqrt(variance + epsilon) by the ops, as a layer takes them.
template <class A>
Statistics statistics_of(Cpu& dev, const Tensor<Cpu>& x) {
  Statistics made(dev, dtype_of<A>(), x.columns());
  const auto rows = static_cast<double>(x.rows());
  batch_norm_sums(dev, x, made.mean.mut());
  auto values = widened(made.mean);
  for (auto& value : values) value /= rows;
  set<A>(made.mean, values);
  batch_norm_squared_deviations(dev, x, made.mean, made.inv_std.mut());
  values = widened(made.inv_std);
  for (auto& value : values) value = 1 / std::sqrt(value / rows + epsilon);
  set<A>(made.inv_std, values);
  return made;
}

struct Run {
  std::vector<double> mean, inv_std, y, sum_dy, sum_dy_xhat, dx;
  bool operator==(const Run&) const = default;
};

template <class T>
Run run(int threads, const Shape& shape, bool relu) {
  using A = Accumulator<T>;
  Cpu dev({.threads = threads});
  const auto x = random_tensor<T>(dev, shape, 1);
  const auto dy = random_tensor<T>(dev, shape, 2);
  const auto gamma = random_tensor<A>(dev, {shape.back()}, 3);
  const auto beta = random_tensor<A>(dev, {shape.back()}, 4);
  const auto statistics = statistics_of<A>(dev, x);
  Tensor<Cpu> y(dev, dtype_of<T>(), shape);
  batch_norm_apply(dev, x, statistics.mean, statistics.inv_std, gamma, beta, relu, y.mut());
  Tensor<Cpu> sum_dy(dev, dtype_of<A>(), {shape.back()});
  Tensor<Cpu> sum_dy_xhat(dev, dtype_of<A>(), {shape.back()});
  batch_norm_backward_sums(dev, dy, x, statistics.mean, statistics.inv_std, sum_dy.mut(),
                           sum_dy_xhat.mut());
  Tensor<Cpu> dx(dev, dtype_of<T>(), shape);
  batch_norm_backward_apply(dev, dy, x, statistics.mean, statistics.inv_std, gamma, sum_dy,
                            sum_dy_xhat, static_cast<double>(x.rows()), dx.mut());
  return {widened(statistics.mean), widened(statistics.inv_std), widened(y),
          widened(sum_dy),          widened(sum_dy_xhat),        widened(dx)};
}

// The same by plain loops in double, from the rounded inputs.
template <class T>
Run expected(const Shape& shape, bool relu) {
  using A = Accumulator<T>;
  Cpu dev;
  const auto x = widened(random_tensor<T>(dev, shape, 1));
  const auto dy = widened(random_tensor<T>(dev, shape, 2));
  const auto gamma = widened(random_tensor<A>(dev, {shape.back()}, 3));
  const auto beta = widened(random_tensor<A>(dev, {shape.back()}, 4));
  const auto columns = gamma.size();
  const auto rows = x.size() / columns;
  const auto count = static_cast<double>(rows);
  Run out{std::vector<double>(columns), std::vector<double>(columns), x,
          std::vector<double>(columns), std::vector<double>(columns), x};
  for (std::size_t c = 0; c < columns; ++c) {
    double variance = 0;
    for (std::size_t r = 0; r < rows; ++r) out.mean[c] += x[r * columns + c] / count;
    for (std::size_t r = 0; r < rows; ++r)
      variance += std::pow(x[r * columns + c] - out.mean[c], 2) / count;
    out.inv_std[c] = 1 / std::sqrt(variance + epsilon);
    const auto normal = [&](std::size_t r) {
      return (x[r * columns + c] - out.mean[c]) * out.inv_std[c];
    };
    for (std::size_t r = 0; r < rows; ++r) {
      const double y = normal(r) * gamma[c] + beta[c];
      out.y[r * columns + c] = relu && y < 0 ? 0 : y;
      out.sum_dy[c] += dy[r * columns + c];
      out.sum_dy_xhat[c] += dy[r * columns + c] * normal(r);
    }
    for (std::size_t r = 0; r < rows; ++r)
      out.dx[r * columns + c] =
          gamma[c] * out.inv_std[c] *
          (dy[r * columns + c] - out.sum_dy[c] / count - normal(r) * out.sum_dy_xhat[c] / count);
  }
  return out;
}

// Rows around the tiles of 64 and 128, columns around the width of vectors.
const std::vector<Shape> shapes{{2, 1}, {2, 3, 3, 5}, {129, 8}, {300, 33}};

}  // namespace

TEST_CASE_TEMPLATE("all ops against plain loops", T, double, float, bf16, f16) {
  const bool exact = std::is_same_v<T, double>;
  const double sums = exact ? 1e-12 : 2e-4;
  const double elements = exact ? 1e-12 : is_16_bit<T> ? 3e-2 : 1e-4;
  for (const auto& shape : shapes)
    for (const bool relu : {false, true}) {
      CAPTURE(to_text(shape));
      const Run got = run<T>(1, shape, relu);
      const Run right = expected<T>(shape, relu);
      CHECK(distance(got.mean, right.mean) < sums);
      // With two rows inv_std may be large.
      double largest = 1;
      for (const double value : right.inv_std) largest = std::max(largest, value);
      CHECK(distance(got.inv_std, right.inv_std, largest) < sums);
      CHECK(distance(got.y, right.y) < elements);
      CHECK(distance(got.sum_dy, right.sum_dy) < sums);
      CHECK(distance(got.sum_dy_xhat, right.sum_dy_xhat) < sums);
      CHECK(distance(got.dx, right.dx, largest) < elements);
      if (relu) CHECK(*std::min_element(got.y.begin(), got.y.end()) >= 0);
    }
}

TEST_CASE_TEMPLATE("threads change no bit", T, double, float, bf16, f16) {
  const Run one = run<T>(1, {1000, 17}, true);
  CHECK(run<T>(2, {1000, 17}, true) == one);
  CHECK(run<T>(3, {1000, 17}, true) == one);
}

TEST_CASE("gradients by finite differences, through the statistics") {
  Cpu dev;
  const Shape shape{3, 2, 2, 3};
  auto x = random_tensor<double>(dev, shape, 1);
  auto gamma = random_tensor<double>(dev, {3}, 2);
  auto beta = random_tensor<double>(dev, {3}, 3);
  const auto dy = random_tensor<double>(dev, shape, 4);
  const auto loss = [&] {
    const auto statistics = statistics_of<double>(dev, x);
    Tensor<Cpu> y(dev, DType::f64, shape);
    batch_norm_apply(dev, x, statistics.mean, statistics.inv_std, gamma, beta, false, y.mut());
    return weighted_sum(y, dy);
  };
  const auto statistics = statistics_of<double>(dev, x);
  Tensor<Cpu> dbeta(dev, DType::f64, {3});
  Tensor<Cpu> dgamma(dev, DType::f64, {3});
  Tensor<Cpu> dx(dev, DType::f64, shape);
  batch_norm_backward_sums(dev, dy, x, statistics.mean, statistics.inv_std, dbeta.mut(),
                           dgamma.mut());
  batch_norm_backward_apply(dev, dy, x, statistics.mean, statistics.inv_std, gamma, dbeta, dgamma,
                            12, dx.mut());
  CHECK(distance(widened(dx), numerical_gradient(x, loss)) < 1e-6);
  CHECK(distance(widened(dgamma), numerical_gradient(gamma, loss)) < 1e-6);
  CHECK(distance(widened(dbeta), numerical_gradient(beta, loss)) < 1e-6);
}

TEST_CASE("sums of two halves, with the count of both, give the whole") {
  // What synchronised batch norm does over ranks.
  Cpu dev;
  const auto x = random_tensor<double>(dev, {10, 4}, 1);
  const auto dy = random_tensor<double>(dev, {10, 4}, 2);
  const auto gamma = random_tensor<double>(dev, {4}, 3);
  const auto statistics = statistics_of<double>(dev, x);
  Tensor<Cpu> sum(dev, DType::f64, {4}), product(dev, DType::f64, {4}),
      whole(dev, DType::f64, {10, 4});
  batch_norm_backward_sums(dev, dy, x, statistics.mean, statistics.inv_std, sum.mut(),
                           product.mut());
  batch_norm_backward_apply(dev, dy, x, statistics.mean, statistics.inv_std, gamma, sum, product,
                            10, whole.mut());
  Tensor<Cpu> parts(dev, DType::f64, {10, 4});
  for (const auto& [first, last] : {std::pair{0, 6}, {6, 10}})
    batch_norm_backward_apply(dev, dy.view().slice(first, last), x.view().slice(first, last),
                              statistics.mean, statistics.inv_std, gamma, sum, product, 10,
                              parts.mut().slice(first, last));
  CHECK(widened(parts) == widened(whole));
}

TEST_CASE("a mean far larger than the deviation costs no digits") {
  Cpu dev;
  const std::int64_t rows = 64;
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) values.push_back(4096.0f + (r % 2 == 0 ? 0.5f : -0.5f));
  const auto x = Tensor<Cpu>::from_host(dev, {rows, 1}, values);
  const auto statistics = statistics_of<float>(dev, x);
  const auto one = Tensor<Cpu>::from_host(dev, {1}, std::vector<float>{1});
  const auto zero = Tensor<Cpu>::zeros(dev, DType::f32, {1});
  Tensor<Cpu> y(dev, DType::f32, {rows, 1});
  batch_norm_apply(dev, x, statistics.mean, statistics.inv_std, one, zero, false, y.mut());
  const double expected = 0.5 / std::sqrt(0.25 + epsilon);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
    CHECK(widened(y)[r] == doctest::Approx(r % 2 == 0 ? expected : -expected).epsilon(1e-6));
}

TEST_CASE("no rows: the sums are 0") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {0, 3}, 1);
  auto sum = random_tensor<float>(dev, {3}, 2);
  batch_norm_sums(dev, x, sum.mut());
  CHECK(widened(sum) == std::vector<double>(3, 0.0));
}

TEST_CASE("what does not fit is refused") {
  Cpu dev;
  const auto x = random_tensor<bf16>(dev, {3, 4}, 1);
  auto half = random_tensor<bf16>(dev, {4}, 2);
  auto short_one = random_tensor<float>(dev, {3}, 2);
  auto y = random_tensor<float>(dev, {3, 4}, 2);
  const auto good = random_tensor<float>(dev, {4}, 2);
  CHECK(message_of([&] { batch_norm_sums(dev, x, half.mut()); }) ==
        "batch_norm: the sum [4] of bf16 does not fit the columns of [3, 4] of bf16");
  CHECK(message_of([&] { batch_norm_squared_deviations(dev, x, good, short_one.mut()); }) ==
        "batch_norm: the sum [3] of f32 does not fit the columns of [3, 4] of bf16");
  CHECK(message_of([&] { batch_norm_apply(dev, x, good, good, good, good, true, y.mut()); }) ==
        "batch_norm: [3, 4] of bf16 does not fit [3, 4] of f32");
}
