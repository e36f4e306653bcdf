// Plain gemm and convolutions: beside the Cpu in double, from the same rounded inputs.
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cuda/fallback_conv2d.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

template <class T>
void same_product(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOptions& options,
                  bool wide_c, bool has_bias) {
  CAPTURE(m);
  CAPTURE(n);
  CAPTURE(k);
  using A = Accumulator<T>;
  Gpu gpu;
  Cpu cpu;
  const Shape a = options.transpose_a ? Shape{k, m} : Shape{m, k};
  const Shape b = options.transpose_b ? Shape{n, k} : Shape{k, n};
  auto c = wide_c ? random_on<A>(gpu, {m, n}, 3) : random_on<T>(gpu, {m, n}, 3);
  auto expected = wide_c ? oracle_of<A>(cpu, {m, n}, 3) : oracle_of<T>(cpu, {m, n}, 3);
  if (options.beta == 0) c = Tensor<Gpu>(gpu, c.dtype(), c.shape());  // NaN: never read
  const auto bias = random_on<A>(gpu, {n}, 4);
  const auto wide_bias = oracle_of<A>(cpu, {n}, 4);
  cuda::fallback_gemm<Gpu>(gpu, random_on<T>(gpu, a, 1).view(), random_on<T>(gpu, b, 2).view(),
                           c.mut(), options, has_bias ? bias.view() : ConstView<Gpu>());
  gemm(cpu, oracle_of<T>(cpu, a, 1), oracle_of<T>(cpu, b, 2), expected.mut(), options,
       has_bias ? wide_bias.view() : ConstView<Cpu>());
  CHECK(relative_error(widened(gpu, c), widened(expected)) <
        (wide_c && is_16_bit<T> ? 2e-6 : tolerance<T>));
}

}  // namespace

TEST_CASE_TEMPLATE("plain gemm: transposes, scales, bias, odd sizes", T, double, float, bf16, f16) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      same_product<T>(67, 65, 33, {.transpose_a = ta, .transpose_b = tb}, false, false);
  same_product<T>(1, 130, 7, {.alpha = 0.5}, false, true);
  same_product<T>(64, 64, 16, {.alpha = 2, .beta = -0.5}, true, true);
  same_product<T>(5, 3, 0, {.beta = 0.5}, false, true);
}

TEST_CASE_TEMPLATE("plain convolutions: kernels, strides, padding, many pixels", T, double, float,
                   bf16, f16) {
  using A = Accumulator<T>;
  Gpu gpu;
  Cpu cpu;
  struct Case {
    Shape x;
    std::int64_t out;
    Conv2dGeometry geometry;
  };
  for (const auto& each : {Case{{2, 7, 5, 3}, 4, {.kernel = 3, .stride = 1, .padding = 1}},
                           Case{{1, 9, 8, 5}, 6, {.kernel = 3, .stride = 2, .padding = 1}},
                           Case{{2, 6, 6, 3}, 8, {.kernel = 5, .stride = 3, .padding = 2}},
                           Case{{1, 40, 60, 2}, 3, {.kernel = 1, .stride = 1, .padding = 0}}}) {
    CAPTURE(each.geometry.kernel);
    const auto y_shape = conv2d_output_shape(each.x, each.out, each.geometry);
    const std::int64_t kernel = each.geometry.kernel;
    const Shape w{each.out, kernel, kernel, each.x[3]};
    Tensor<Gpu> y(gpu, dtype_of<T>(), y_shape), dx(gpu, dtype_of<T>(), each.x);
    Tensor<Cpu> y2(cpu, DType::f64, y_shape), dx2(cpu, DType::f64, each.x);
    auto dw = random_on<A>(gpu, w, 4);
    auto dw2 = oracle_of<A>(cpu, w, 4);
    const auto x = random_on<T>(gpu, each.x, 1), weights = random_on<T>(gpu, w, 2);
    const auto dy = random_on<T>(gpu, y_shape, 3);
    cuda::fallback_conv2d_forward<Gpu>(gpu, x, weights, each.geometry, y.mut());
    cuda::fallback_conv2d_backward_data<Gpu>(gpu, dy, weights, each.geometry, dx.mut());
    cuda::fallback_conv2d_backward_filter<Gpu>(gpu, x, dy, each.geometry, dw.mut(), 0.5);
    const auto wide_x = oracle_of<T>(cpu, each.x, 1), wide_w = oracle_of<T>(cpu, w, 2);
    const auto wide_dy = oracle_of<T>(cpu, y_shape, 3);
    conv2d_forward(cpu, wide_x, wide_w, each.geometry, y2.mut());
    conv2d_backward_data(cpu, wide_dy, wide_w, each.geometry, dx2.mut());
    conv2d_backward_filter(cpu, wide_x, wide_dy, each.geometry, dw2.mut(), 0.5);
    CHECK(relative_error(widened(gpu, y), widened(y2)) < tolerance<T>);
    CHECK(relative_error(widened(gpu, dx), widened(dx2)) < tolerance<T>);
    CHECK(relative_error(widened(gpu, dw), widened(dw2)) <
          (std::is_same_v<A, double> ? 1e-13 : 4e-6));
  }
}
