// Cross-entropy: every op agrees with the Cpu's, from the same rounded logits.
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/cross_entropy.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

using Labels = std::vector<std::int32_t>;

// Runs all ops. x holds the logits of the classes from options.first_class on.
Results run(auto& side, const auto& x, const Labels& wanted, const CrossEntropyOptions& options) {
  auto& dev = side.dev;
  const auto rows = x.rows();
  const auto labels = side.tensor({rows}, wanted);
  const auto scale = side.tensor({1}, std::vector{0.5});
  auto max = side.fresh_sums({rows}), sums = side.fresh_sums({3, rows}),
       loss = side.fresh_sums({rows}), gradient = side.fresh(x.shape());
  Tensor rank(dev, DType::i32, {rows}), totals(dev, DType::f64, {4});
  detail::cross_entropy_max(dev, x, options, max.mut());
  detail::cross_entropy_sums(dev, x, labels, max, options, sums.mut());
  detail::cross_entropy_loss(dev, max, sums, labels, options, loss.mut());
  detail::cross_entropy_rank(dev, x, sums, labels, options, rank.mut());
  detail::cross_entropy_totals(dev, loss, labels, rank, totals.mut());
  detail::cross_entropy_backward(dev, x, max, sums, labels, options, scale, gradient.mut());
  const auto ranks = rank.template to_host<std::int32_t>(dev);
  return {side.values(max.view()),  {ranks.begin(), ranks.end()}, side.values(sums.view()),
          side.values(loss.view()), side.values(totals.view()),   side.values(gradient.view())};
}

template <class T>
void same_as_cpu(std::int64_t rows, std::int64_t columns, std::int64_t first_class,
                 std::int64_t classes, double smoothing, std::int64_t padding = 0) {
  INFO("rows ", rows, " columns ", columns);
  Labels labels;
  for (std::int64_t row = 0; row < rows; ++row)
    labels.push_back(static_cast<std::int32_t>(row % 5 == 3 ? -1 : row * 31 % classes));
  const auto [got, expected] = with_oracle<T>([&](auto& side) {
    return run(side, side.elements({rows, columns + padding}, 1), labels,
               {.classes = classes,
                .first_class = first_class,
                .smoothing = smoothing,
                .local_classes = padding == 0 ? -1 : columns});
  });
  const double sum = std::is_same_v<T, double> ? 1e-13 : 3e-6;
  CHECK(got[0] == expected[0]);
  CHECK(got[1] == expected[1]);
  for (const std::size_t at : {2, 3, 4}) CHECK(relative_error(got[at], expected[at]) < sum);
  CHECK(relative_error(got[5], expected[5]) < tolerance<T> + sum);
}

}  // namespace

TEST_CASE_TEMPLATE("cross entropy agrees with the Cpu for short, long, odd and unaligned rows", T,
                   double, float, bf16, f16) {
  same_as_cpu<T>(7, 2, 0, 2, 0);
  same_as_cpu<T>(5, 33, 0, 33, 0.1);
  same_as_cpu<T>(4, 1000, 0, 1000, 0.1);
  same_as_cpu<T>(3, 4098, 0, 4098, 0);
  same_as_cpu<T>(6, 40, 40, 120, 0.1);  // x is the second of three parts
  same_as_cpu<T>(6, 37, 40, 120, 0.1, 27);
  same_as_cpu<T>(3, 1001, 0, 1001, 0, 3);
}

TEST_CASE_TEMPLATE("cross entropy: a shift of all logits of a row loses no digits", T, float,
                   bf16) {
  const int far = std::is_same_v<T, float> ? 1 << 20 : 128;
  std::vector<double> logits;
  for (int at = 0; at < 4 * 33; ++at) logits.push_back(far + at * 31 % 8);  // integers that T holds
  const Shape shape{4, 33};
  for (const double smoothing : {0.0, 0.1}) {
    const auto [got, expected] = with_oracle<T>([&](auto& side) {
      auto x = side.fresh(shape);
      cast(side.dev, side.tensor(shape, logits).view(), x.mut());
      return run(side, x, {3, 0, -1, 32}, {.classes = 33, .smoothing = smoothing});
    });
    CHECK(relative_error(got[3], expected[3]) < 1e-6);
  }
}

TEST_CASE("cross entropy: a gradient in place has the same bits; an invalid label gives NaN") {
  Side<float, Gpu> side;
  Gpu& gpu = side.dev;
  auto x = side.elements({3, 10}, 1), max = side.fresh({3}), sums = side.fresh({3, 3}),
       loss = side.fresh({3});
  const auto labels = side.tensor({3}, Labels{1, 10, -2});
  const CrossEntropyOptions options{.classes = 10};
  detail::cross_entropy_max(gpu, x, options, max.mut());
  detail::cross_entropy_sums(gpu, x, labels, max, options, sums.mut());
  detail::cross_entropy_loss(gpu, max, sums, labels, options, loss.mut());
  const auto found = side.values(loss.view());
  CHECK(found[0] > 0);
  CHECK(std::isnan(found[1]));
  CHECK(std::isnan(found[2]));

  const auto scale = Tensor<Gpu>::from_host(gpu, {1}, std::vector<double>{1});
  Tensor<Gpu> apart(gpu, DType::f32, {3, 10});
  detail::cross_entropy_backward(gpu, x, max, sums, labels, options, scale, apart.mut());
  detail::cross_entropy_backward(gpu, x.view(), max, sums, labels, options, scale, x.mut());
  CHECK(widened(gpu, x) == widened(gpu, apart));
}

TEST_CASE("cross entropy: NaN logits are no right prediction, and reach the sums") {
  Side<float, Gpu> side;
  const auto found =
      run(side, side.tensor({1, 4}, std::vector<float>{1, NAN, 0, 2}), {3}, {.classes = 4});
  CHECK(found[1][0] == 1);
  CHECK(std::isnan(found[3][0]));
  CHECK(std::isnan(found[4][0]));
}
