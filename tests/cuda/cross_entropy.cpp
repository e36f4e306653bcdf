// Cross-entropy: every piece beside its twin on the Cpu, from the same rounded logits.
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/cross_entropy.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace dhp;
using namespace tests;

namespace {

using Labels = std::vector<std::int32_t>;

struct Found {
  std::vector<double> max, sums, loss, totals, gradient;
  std::vector<std::int32_t> rank;
};

// All pieces; the classes of x are those from options.first_class on.
template <class Dev>
Found run(Dev& dev, const Tensor<Dev>& x, const Labels& wanted,
          const CrossEntropyOptions& options) {
  const auto rows = x.rows();
  const auto type = accumulation_type(x.dtype());
  const auto labels = Tensor<Dev>::from_host(dev, {rows}, wanted);
  const auto scale = Tensor<Dev>::from_host(dev, {1}, std::vector<double>{0.5});
  Tensor<Dev> max(dev, type, {rows}), sums(dev, type, {3, rows}), loss(dev, type, {rows});
  Tensor<Dev> rank(dev, DType::i32, {rows}), totals(dev, DType::f64, {4});
  Tensor<Dev> gradient(dev, x.dtype(), x.shape());
  cross_entropy_max(dev, x, max.mut());
  cross_entropy_sums(dev, x, labels, max, options, sums.mut());
  cross_entropy_loss(dev, max, sums, labels, options, loss.mut());
  cross_entropy_rank(dev, x, sums, labels, options, rank.mut());
  cross_entropy_totals(dev, loss, labels, rank, totals.mut());
  cross_entropy_backward(dev, x, max, sums, labels, options, scale, gradient.mut());
  const auto wide = [&](const Tensor<Dev>& tensor) {
    Tensor<Dev> all(dev, DType::f64, tensor.shape());
    cast(dev, tensor, all.mut());
    return all.template to_host<double>(dev);
  };
  return {wide(max),    wide(sums),     wide(loss),
          wide(totals), wide(gradient), rank.template to_host<std::int32_t>(dev)};
}

template <class T>
void same_as_cpu(std::int64_t rows, std::int64_t columns, std::int64_t first_class,
                 std::int64_t classes, double smoothing) {
  CAPTURE(rows);
  CAPTURE(columns);
  Gpu gpu;
  Cpu cpu;
  Labels labels;
  for (std::int64_t row = 0; row < rows; ++row)
    labels.push_back(static_cast<std::int32_t>(row % 5 == 3 ? -1 : row * 31 % classes));
  const CrossEntropyOptions options{
      .classes = classes, .first_class = first_class, .smoothing = smoothing};
  const auto found = run(gpu, random_on<T>(gpu, {rows, columns}, 1), labels, options);
  // In double, from the same numbers.
  const auto expected = run(cpu, oracle_of<T>(cpu, {rows, columns}, 1), labels, options);
  const double sum = std::is_same_v<T, double> ? 1e-13 : 3e-6;
  CHECK(distance(found.max, expected.max) == 0);
  CHECK(relative_error(found.sums, expected.sums) < sum);
  CHECK(relative_error(found.loss, expected.loss) < sum);
  CHECK(relative_error(found.totals, expected.totals) < sum);
  CHECK(relative_error(found.gradient, expected.gradient) < tolerance<T> + sum);
  CHECK(found.rank == expected.rank);
}

}  // namespace

TEST_CASE_TEMPLATE("all pieces agree with the Cpu: short, long, odd and unaligned rows", T, double,
                   float, bf16, f16) {
  same_as_cpu<T>(7, 2, 0, 2, 0);
  same_as_cpu<T>(5, 33, 0, 33, 0.1);
  same_as_cpu<T>(4, 1000, 0, 1000, 0.1);
  same_as_cpu<T>(3, 4098, 0, 4098, 0);
  same_as_cpu<T>(6, 40, 40, 120, 0.1);  // the second of three parts
}

TEST_CASE_TEMPLATE("what is added to all logits of a row costs its loss no digits", T, float,
                   bf16) {
  const int far = std::is_same_v<T, float> ? 1 << 20 : 128;
  Gpu gpu;
  Cpu cpu;
  std::vector<T> logits;
  std::vector<double> wide;
  for (int at = 0; at < 4 * 33; ++at) {
    wide.push_back(far + at * 31 % 8);  // integers that T holds
    logits.push_back(static_cast<T>(wide.back()));
  }
  const Shape shape{4, 33};
  for (const double smoothing : {0.0, 0.1}) {
    const CrossEntropyOptions options{.classes = 33, .smoothing = smoothing};
    const Labels labels{3, 0, -1, 32};
    const auto found = run(gpu, Tensor<Gpu>::from_host(gpu, shape, logits), labels, options);
    const auto right = run(cpu, Tensor<Cpu>::from_host(cpu, shape, wide), labels, options);
    CHECK(relative_error(found.loss, right.loss) < 1e-6);
  }
}

TEST_CASE("a gradient over the logits is the same; a label that is no class makes its loss NaN") {
  Gpu gpu;
  auto x = random_on<float>(gpu, {3, 10}, 1);
  const auto labels = Tensor<Gpu>::from_host(gpu, {3}, Labels{1, 10, -2});
  const CrossEntropyOptions options{.classes = 10};
  Tensor<Gpu> max(gpu, DType::f32, {3}), sums(gpu, DType::f32, {3, 3}), loss(gpu, DType::f32, {3});
  cross_entropy_max(gpu, x, max.mut());
  cross_entropy_sums(gpu, x, labels, max, options, sums.mut());
  cross_entropy_loss(gpu, max, sums, labels, options, loss.mut());
  const auto found = widened(gpu, loss);
  CHECK(found[0] > 0);
  CHECK(std::isnan(found[1]));
  CHECK(std::isnan(found[2]));

  const auto scale = Tensor<Gpu>::from_host(gpu, {1}, std::vector<double>{1});
  Tensor<Gpu> apart(gpu, DType::f32, {3, 10});
  cross_entropy_backward(gpu, x, max, sums, labels, options, scale, apart.mut());
  cross_entropy_backward(gpu, x.view(), max, sums, labels, options, scale, x.mut());
  CHECK(widened(gpu, x) == widened(gpu, apart));
}

TEST_CASE("NaN logits: never a right prediction, and the sums show them") {
  Gpu gpu;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto x = Tensor<Gpu>::from_host(gpu, {1, 4}, std::vector<float>{1, nan, 0, 2});
  const auto found = run(gpu, x, {3}, {.classes = 4});
  CHECK(std::isnan(found.loss[0]));
  CHECK(std::isnan(found.totals[0]));
  CHECK(found.rank[0] == 1);
}
