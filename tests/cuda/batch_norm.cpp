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
  std::vector<double> sum, squares, sum_dy, sum_dy_xhat;
  std::vector<double> y, dx;
};

// x and dy in `type`, vectors in its accumulation type. The rows start `skip` elements into x and dy.
template <class Dev, class Random>
Run run(Dev& dev, const Shape& shape, std::int64_t skip, bool relu, const Random& random,
        const auto& values_of) {
  const auto columns = shape.back();
  const Shape all{shape.count() + skip};
  auto x_all = random.elements(all, 1), dy_all = random.elements(all, 2);
  const auto part = [&](ConstView<Dev> view) { return view.slice(skip, all[0]).as(shape); };
  const auto x = part(x_all), dy = part(dy_all);
  const auto mean = random.vector(columns, 3), inv_std = random.vector(columns, 4);
  const auto gamma = random.vector(columns, 5), beta = random.vector(columns, 6);
  const auto made = [&] { return Tensor<Dev>(dev, mean.dtype(), {columns}); };
  Tensor<Dev> sum = made(), squares = made(), sum_dy = made(), sum_dy_xhat = made();
  Tensor<Dev> y(dev, x.dtype(), shape), dx(dev, x.dtype(), shape);
  batch_norm_sums(dev, x, sum.mut());
  batch_norm_squared_deviations(dev, x, mean, squares.mut());
  batch_norm_apply(dev, x, mean, inv_std, gamma, beta, relu, y.mut());
  batch_norm_backward_sums(dev, dy, x, mean, inv_std, sum_dy.mut(), sum_dy_xhat.mut());
  // As if over three ranks, each with so many rows; from sums that are the same on both devices.
  const auto count = 3.0 * static_cast<double>(shape.rows()) + 1;
  batch_norm_backward_apply(dev, dy, x, mean, inv_std, gamma, random.vector(columns, 7),
                            random.vector(columns, 8), count, dx.mut());
  return {values_of(sum),         values_of(squares), values_of(sum_dy),
          values_of(sum_dy_xhat), values_of(y),       values_of(dx)};
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
  CHECK(relative_error(got.y, right.y) <= tolerance<T>);
  CHECK(relative_error(got.dx, right.dx) <= tolerance<T>);
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

TEST_CASE("ReLU cuts to 0, and keeps NaN") {
  Gpu gpu;
  const std::vector<float> values{-1, -0.0f, 2, NAN}, zero(4, 0.0f), one(4, 1.0f);
  const auto x = Tensor<Gpu>::from_host(gpu, {1, 4}, values);
  const auto zeros = Tensor<Gpu>::from_host(gpu, {4}, zero);
  const auto ones = Tensor<Gpu>::from_host(gpu, {4}, one);
  Tensor<Gpu> y(gpu, DType::f32, {1, 4});
  batch_norm_apply(gpu, x, zeros, ones, ones, zeros, true, y.mut());
  const auto got = widened(gpu, y);
  CHECK(got[0] == 0);
  CHECK(got[1] == 0);
  CHECK(got[2] == 2);
  CHECK(std::isnan(got[3]));
  batch_norm_apply(gpu, x, zeros, ones, ones, zeros, false, y.mut());
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
