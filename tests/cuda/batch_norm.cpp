// Batch normalisation: every op against the Cpu in double, from the same statistics; channels that packs can and
// cannot read, few and many rows.
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

// Results by name; `elements` are of the type of x, the others of its accumulation type.
struct Run {
  std::vector<double> sum, squares, sum_dy, sum_dy_xhat, relu_sum_dy, relu_sum_dy_xhat;
  std::vector<double> residual_sum_dy, residual_sum_dy_xhat;
  std::vector<double> y, added, dresidual, dx, relu_dx;
};

// x, dy and what is as large in `type`, vectors in its accumulation type. The rows start `skip` elements into them.
template <class Dev, class Random>
Run run(Dev& dev, const Shape& shape, std::int64_t skip, bool relu, const Random& random,
        const auto& values_of) {
  const auto columns = shape.back();
  const Shape all{shape.count() + skip};
  auto x_all = random.elements(all, 1), dy_all = random.elements(all, 2);
  auto residual_all = random.elements(all, 9), y_all = random.elements(all, 10);
  const auto part = [&](ConstView<Dev> view) { return view.slice(skip, all[0]).as(shape); };
  const auto x = part(x_all), dy = part(dy_all), residual = part(residual_all);
  const auto mean = random.vector(columns, 3), inv_std = random.vector(columns, 4);
  const auto gamma = random.vector(columns, 5), beta = random.vector(columns, 6);
  const BatchNormVectors<Dev> vectors{mean, inv_std, gamma, beta};
  const auto made = [&] { return Tensor<Dev>(dev, mean.dtype(), {columns}); };
  Tensor<Dev> sum = made(), squares = made(), sum_dy = made(), sum_dy_xhat = made(),
              relu_sum_dy = made(), relu_sum_dy_xhat = made(), residual_sum_dy = made(),
              residual_sum_dy_xhat = made();
  const auto like_x = [&] { return Tensor<Dev>(dev, x.dtype(), shape); };
  Tensor<Dev> y = like_x(), added = like_x(), dresidual = like_x(), dx = like_x(),
              relu_dx = like_x();
  batch_norm_sums(dev, x, sum.mut());
  batch_norm_squared_deviations(dev, x, mean, squares.mut());
  batch_norm_apply(dev, x, vectors, {}, relu, y.mut());
  batch_norm_apply(dev, x, vectors, residual, relu, added.mut());
  batch_norm_backward_sums(dev, dy, x, vectors, false, sum_dy.mut(), sum_dy_xhat.mut());
  batch_norm_backward_sums(dev, dy, x, vectors, true, relu_sum_dy.mut(), relu_sum_dy_xhat.mut());
  // Some y, the same on both devices: half of it is not more than 0.
  batch_norm_residual_backward_sums(dev, dy, part(y_all), x, vectors, dresidual.mut(),
                                    residual_sum_dy.mut(), residual_sum_dy_xhat.mut());
  // As if over three ranks, each with so many rows; from sums that are the same on both devices.
  const auto count = 3.0 * static_cast<double>(shape.rows()) + 1;
  const auto some = random.vector(columns, 7), others = random.vector(columns, 8);
  batch_norm_backward_apply(dev, dy, x, vectors, false, some, others, count, dx.mut());
  batch_norm_backward_apply(dev, dy, x, vectors, true, some, others, count, relu_dx.mut());
  return {values_of(sum),
          values_of(squares),
          values_of(sum_dy),
          values_of(sum_dy_xhat),
          values_of(relu_sum_dy),
          values_of(relu_sum_dy_xhat),
          values_of(residual_sum_dy),
          values_of(residual_sum_dy_xhat),
          values_of(y),
          values_of(added),
          values_of(dresidual),
          values_of(dx),
          values_of(relu_dx)};
}

template <class T>
struct OnGpu {
  Gpu& gpu;
  Tensor<Gpu> elements(const Shape& shape, std::uint32_t use) const {
    return random_on<T>(gpu, shape, use);
  }
  Tensor<Gpu> vector(std::int64_t columns, std::uint32_t use) const {
    return random_on<Accumulator<T>>(gpu, {columns}, use);
  }
};
template <class T>
struct Oracle {
  Cpu& cpu;
  Tensor<Cpu> elements(const Shape& shape, std::uint32_t use) const {
    return oracle_of<T>(cpu, shape, use);
  }
  Tensor<Cpu> vector(std::int64_t columns, std::uint32_t use) const {
    return oracle_of<Accumulator<T>>(cpu, {columns}, use);
  }
};

template <class T>
void check_all(const Shape& shape, std::int64_t skip, bool relu) {
  using A = Accumulator<T>;
  CAPTURE(to_text(shape));
  CAPTURE(skip);
  Gpu gpu;
  Cpu cpu;
  const Run got = run(gpu, shape, skip, relu, OnGpu<T>{gpu},
                      [&](const Tensor<Gpu>& tensor) { return widened(gpu, tensor); });
  const Run right = run(cpu, shape, skip, relu, Oracle<T>{cpu},
                        [](const Tensor<Cpu>& tensor) { return widened(tensor); });
  const double size = std::sqrt(static_cast<double>(shape.rows())) + 1;  // sums may cancel
  CHECK(distance(got.sum, right.sum, size) <= tolerance<A> * 2);
  CHECK(relative_error(got.squares, right.squares) <= tolerance<A>);
  CHECK(distance(got.sum_dy, right.sum_dy, size) <= tolerance<A> * 2);
  CHECK(distance(got.sum_dy_xhat, right.sum_dy_xhat, size) <= tolerance<A> * 8);
  CHECK(distance(got.relu_sum_dy, right.relu_sum_dy, size) <= tolerance<A> * 2);
  CHECK(distance(got.relu_sum_dy_xhat, right.relu_sum_dy_xhat, size) <= tolerance<A> * 8);
  CHECK(distance(got.residual_sum_dy, right.residual_sum_dy, size) <= tolerance<A> * 2);
  CHECK(distance(got.residual_sum_dy_xhat, right.residual_sum_dy_xhat, size) <= tolerance<A> * 8);
  CHECK(relative_error(got.y, right.y) <= tolerance<T>);
  CHECK(relative_error(got.added, right.added) <= tolerance<T>);
  CHECK(got.dresidual == right.dresidual);
  CHECK(relative_error(got.dx, right.dx) <= tolerance<T>);
  CHECK(relative_error(got.relu_dx, right.relu_dx) <= tolerance<T>);
}

}  // namespace

TEST_CASE_TEMPLATE("batch norm agrees with the Cpu", T, double, float, bf16, f16) {
  check_all<T>({1, 1}, 0, false);
  check_all<T>({2, 5, 5, 24}, 0, true);
  check_all<T>({9, 3, 7}, 0, false);
  check_all<T>({5, 264}, 0, true);
  check_all<T>({65, 16}, 1, true);
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
  const BatchNormVectors<Gpu> vectors{mean, inv_std, gamma, beta};
  Tensor<Gpu> y(gpu, DType::bf16, shape), out(gpu, DType::bf16, shape);
  batch_norm_apply(gpu, x, vectors, residual, true, y.mut());
  auto over = clone(gpu, residual.view());
  batch_norm_apply(gpu, x, vectors, over.view(), true, over.mut());
  CHECK(widened(gpu, over) == widened(gpu, y));
  auto sum = vector(8), product = vector(9), sum_again = vector(8), product_again = vector(9);
  batch_norm_residual_backward_sums(gpu, dy, y, x, vectors, out.mut(), sum.mut(), product.mut());
  over = clone(gpu, dy.view());
  batch_norm_residual_backward_sums(gpu, over.view(), y, x, vectors, over.mut(), sum_again.mut(),
                                    product_again.mut());
  CHECK(widened(gpu, over) == widened(gpu, out));
  CHECK(widened(gpu, sum_again) == widened(gpu, sum));
  CHECK(widened(gpu, product_again) == widened(gpu, product));
  batch_norm_backward_apply(gpu, dy, x, vectors, true, sum, product, 33, out.mut());
  over = clone(gpu, dy.view());
  batch_norm_backward_apply(gpu, over.view(), x, vectors, true, sum, product, 33, over.mut());
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
  const BatchNormVectors<Gpu> vectors{zeros, ones, ones, zeros};
  Tensor<Gpu> y(gpu, DType::f32, {1, 4}), sum(gpu, DType::f32, {4}), product(gpu, DType::f32, {4});
  for (const bool residual : {false, true}) {
    batch_norm_apply(gpu, x, vectors, residual ? nothing.view() : ConstView<Gpu>(), true, y.mut());
    const auto got = widened(gpu, y);
    CHECK(got[0] == 0);
    CHECK(got[1] == 0);
    CHECK(got[2] == 2);
    CHECK(std::isnan(got[3]));
    if (residual)
      batch_norm_residual_backward_sums(gpu, dy, y, x, vectors, y.mut(), sum.mut(), product.mut());
    else batch_norm_backward_sums(gpu, dy, x, vectors, true, sum.mut(), product.mut());
    CHECK(widened(gpu, sum) == std::vector<double>{0, 0, 1, 0});
  }
  batch_norm_apply(gpu, x, vectors, {}, false, y.mut());
  CHECK(widened(gpu, y)[0] == -1);
}

TEST_CASE("squared deviations keep their digits where the mean is large") {
  Gpu gpu;
  const std::vector<float> values{4000, 4001, 3999, 4000}, mean{4000};
  Tensor<Gpu> sum(gpu, DType::f32, {1});
  batch_norm_squared_deviations(gpu, Tensor<Gpu>::from_host(gpu, {4, 1}, values),
                                Tensor<Gpu>::from_host(gpu, {1}, mean), sum.mut());
  CHECK(widened(gpu, sum)[0] == 2);
}
