// Batch normalisation: every op against the Cpu in double; channels with packs and without, few and many rows.
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/squared_deviations.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

// The rows of x, dy and what is as large start `skip` elements into their tensors.
template <class T>
void check_all(const Shape& shape, std::int64_t skip, bool relu) {
  using A = Accumulator<T>;
  INFO("shape ", to_text(shape), " skip ", skip);
  const auto [got, right] = with_oracle<T>([&](auto& side) -> Results {
    const Shape all{shape.count() + skip}, columns{shape.back()};
    const auto part = [&](auto view) { return view.slice(skip, all[0]).as(shape); };
    const auto x_all = side.elements(all, 1), dy_all = side.elements(all, 2),
               residual_all = side.elements(all, 9), y_all = side.elements(all, 10);
    const auto x = part(x_all.view()), dy = part(dy_all.view()),
               residual = part(residual_all.view()), some_y = part(y_all.view());
    const auto mean = side.sums(columns, 3), inv_std = side.sums(columns, 4),
               gamma = side.sums(columns, 5), beta = side.sums(columns, 6);
    const detail::BatchNormVectors<decltype(side.dev)> vectors{mean, inv_std, gamma, beta};
    Results found;
    const auto keep = [&](const auto&... tensors) {
      (found.push_back(side.values(tensors.view())), ...);
    };
    auto& dev = side.dev;
    auto sum = side.fresh_sums(columns), product = side.fresh_sums(columns);
    detail::batch_norm_sums(dev, x, sum.mut());
    detail::batch_norm_squared_deviations(dev, x, mean, product.mut());
    keep(sum, product);
    for (const bool gated : {false, true}) {
      detail::batch_norm_backward_sums(dev, dy, x, vectors, gated, sum.mut(), product.mut());
      keep(sum, product);
    }
    auto to = side.fresh(shape);
    detail::batch_norm_residual_backward_sums(dev, dy, some_y, x, vectors, to.mut(), sum.mut(),
                                              product.mut());
    keep(sum, product, to);
    detail::batch_norm_apply(dev, x, vectors, {}, relu, to.mut());
    keep(to);
    detail::batch_norm_apply(dev, x, vectors, residual, relu, to.mut());
    keep(to);
    // As if over three ranks, each with so many rows; from sums that are the same on both devices.
    const auto count = 3.0 * static_cast<double>(shape.rows()) + 1;
    const auto some = side.sums(columns, 7), others = side.sums(columns, 8);
    for (const bool gated : {false, true}) {
      detail::batch_norm_backward_apply(dev, dy, x, vectors, gated, some, others, count, to.mut());
      keep(to);
    }
    return found;
  });
  const double size = std::sqrt(static_cast<double>(shape.rows())) + 1;  // sums may cancel
  CHECK(distance(got[0], right[0], size) <= tolerance<A> * 2);
  CHECK(relative_error(got[1], right[1]) <= tolerance<A>);
  for (const std::size_t at : {2, 4, 6}) {  // plain, with ReLU, with a residual
    CAPTURE(at);
    CHECK(distance(got[at], right[at], size) <= tolerance<A> * 2);
    CHECK(distance(got[at + 1], right[at + 1], size) <= tolerance<A> * 8);
  }
  CHECK(got[8] == right[8]);
  for (std::size_t at = 9; at < got.size(); ++at) {
    CAPTURE(at);
    CHECK(relative_error(got[at], right[at]) <= tolerance<T>);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("batch norm agrees with the Cpu", T, double, float, bf16, f16) {
  check_all<T>({1, 1}, 0, false);
  check_all<T>({2, 5, 5, 24}, 0, true);
  check_all<T>({9, 3, 7}, 0, false);
  check_all<T>({5, 264}, 0, true);
  check_all<T>({65, 16}, 1, true);
  check_all<T>({40, 6}, 0, true);  // packs of two
}

TEST_CASE("batch norm over many rows, and over none") {
  check_all<float>({3000, 8}, 0, true);
  check_all<bf16>({3000, 8}, 0, true);
  check_all<float>({0, 4}, 0, false);
}

TEST_CASE("results may go where their inputs were") {
  Gpu gpu;
  const Shape shape{33, 24};
  const auto x = random_on<bf16>(gpu, shape, 1), residual = random_on<bf16>(gpu, shape, 2),
             dy = random_on<bf16>(gpu, shape, 3);
  const auto vector = [&](std::uint32_t use) { return random_on<float>(gpu, {24}, use); };
  const auto mean = vector(4), inv_std = vector(5), gamma = vector(6), beta = vector(7);
  const detail::BatchNormVectors<Gpu> vectors{mean, inv_std, gamma, beta};
  Tensor<Gpu> y(gpu, DType::bf16, shape), out(gpu, DType::bf16, shape);
  detail::batch_norm_apply(gpu, x, vectors, residual, true, y.mut());
  auto over = clone(gpu, residual.view());
  detail::batch_norm_apply(gpu, x, vectors, over.view(), true, over.mut());
  CHECK(widened(gpu, over) == widened(gpu, y));
  auto sum = vector(8), product = vector(9), sum_again = vector(8), product_again = vector(9);
  detail::batch_norm_residual_backward_sums(gpu, dy, y, x, vectors, out.mut(), sum.mut(),
                                            product.mut());
  over = clone(gpu, dy.view());
  detail::batch_norm_residual_backward_sums(gpu, over.view(), y, x, vectors, over.mut(),
                                            sum_again.mut(), product_again.mut());
  CHECK(widened(gpu, over) == widened(gpu, out));
  CHECK(widened(gpu, sum_again) == widened(gpu, sum));
  CHECK(widened(gpu, product_again) == widened(gpu, product));
  detail::batch_norm_backward_apply(gpu, dy, x, vectors, true, sum, product, 33, out.mut());
  over = clone(gpu, dy.view());
  detail::batch_norm_backward_apply(gpu, over.view(), x, vectors, true, sum, product, 33,
                                    over.mut());
  CHECK(widened(gpu, over) == widened(gpu, out));
}

TEST_CASE("ReLU cuts to 0, and keeps NaN; neither has a gradient") {
  Gpu gpu;
  const std::vector<float> values{-1, -0.0f, 2, NAN}, zero(4, 0.0f), one(4, 1.0f);
  const auto x = Tensor<Gpu>::from_host(gpu, {1, 4}, values);
  const auto nothing = Tensor<Gpu>::from_host(gpu, {1, 4}, zero);
  const auto dy = Tensor<Gpu>::from_host(gpu, {1, 4}, one);
  const auto zeros = Tensor<Gpu>::from_host(gpu, {4}, zero);
  const auto ones = Tensor<Gpu>::from_host(gpu, {4}, one);
  const detail::BatchNormVectors<Gpu> vectors{zeros, ones, ones, zeros};
  Tensor<Gpu> y(gpu, DType::f32, {1, 4}), sum(gpu, DType::f32, {4}), product(gpu, DType::f32, {4});
  for (const bool residual : {false, true}) {
    detail::batch_norm_apply(gpu, x, vectors, residual ? nothing.view() : ConstView<Gpu>(), true,
                             y.mut());
    const auto got = widened(gpu, y);
    CHECK(got[0] == 0);
    CHECK(got[1] == 0);
    CHECK(got[2] == 2);
    CHECK(std::isnan(got[3]));
    if (residual)
      detail::batch_norm_residual_backward_sums(gpu, dy, y, x, vectors, y.mut(), sum.mut(),
                                                product.mut());
    else detail::batch_norm_backward_sums(gpu, dy, x, vectors, true, sum.mut(), product.mut());
    CHECK(widened(gpu, sum) == std::vector<double>{0, 0, 1, 0});
  }
  detail::batch_norm_apply(gpu, x, vectors, {}, false, y.mut());
  CHECK(widened(gpu, y)[0] == -1);
}

TEST_CASE("squared deviations keep their digits where the mean is large") {
  Gpu gpu;
  const std::vector<float> values{4000, 4001, 3999, 4000}, mean{4000};
  Tensor<Gpu> sum(gpu, DType::f32, {1});
  detail::batch_norm_squared_deviations(gpu, Tensor<Gpu>::from_host(gpu, {4, 1}, values),
                                        Tensor<Gpu>::from_host(gpu, {1}, mean), sum.mut());
  CHECK(widened(gpu, sum)[0] == 2);
}

TEST_CASE("squared deviations follow from the library's 1 / sqrt(variance + epsilon)") {
  constexpr double epsilon = 1e-3, rows = 12;
  for (const std::int64_t skip : {0, 1}) {
    Gpu gpu;
    const std::vector<float> variances{0, 0.25, 1, 9, 64, 1e-4f, 2};
    std::vector<float> inv_std;
    for (const double variance : variances)
      inv_std.push_back(static_cast<float>(1 / std::sqrt(variance + epsilon)));
    const auto x = Tensor<Gpu>::from_host(gpu, {7}, inv_std);
    Tensor<Gpu> y(gpu, DType::f32, {7});
    detail::cuda::map(gpu, 7 - skip, detail::cuda::SquaredDeviations{epsilon, rows},
                      y.mut().slice(skip, 7).template data<float>(),
                      x.view().slice(skip, 7).template data<float>());
    const auto found = widened(gpu, y);
    for (auto at = static_cast<std::size_t>(skip); at < found.size(); ++at)
      CHECK(found[at] == Approx(rows * variances[at]).epsilon(1e-4));
  }
}

TEST_CASE_TEMPLATE("batch_norm: statistics from sums", T, double, float) {
  for (const std::int64_t channels : {1, 37, 2048}) {
    const auto [got, right] = with_oracle<T>([&](auto& side) -> Results {
      auto sums = side.sums({2, channels}, 1);
      fill(side.dev, sums.mut().slice(1, 2), 30.0);  // of 20 rows: more than mean^2 by far
      const Shape columns{channels};
      auto mean = side.fresh_sums(columns), inv_std = side.fresh_sums(columns),
           deviations = side.fresh_sums(columns);
      detail::batch_norm_from_sums(side.dev, sums, 20, 1e-3, mean.mut(), inv_std.mut(),
                                   deviations.mut());
      return side.results(mean, inv_std, deviations);
    });
    for (std::size_t at = 0; at < got.size(); ++at)
      CHECK(relative_error(got[at], right[at]) <= tolerance<T> * 2);
  }
}
