// The kernels of gemm and convolutions.
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/fallback_conv2d.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

template <class T>
void same_product(std::int64_t m, std::int64_t n, std::int64_t k, const GemmOptions& options,
                  bool wide_c, bool has_bias) {
  INFO("m ", m, " n ", n, " k ", k);
  const std::int64_t more = options.padded ? 3 : 0;
  const Shape a = options.transpose_a ? Shape{k, m + more} : Shape{m, k + more};
  const Shape b = options.transpose_b ? Shape{n, k} : Shape{k, n};
  const auto [got, expected] = with_oracle<T>([&](auto& side) -> Results {
    const Shape of_c{m, n + more};
    auto c = wide_c ? side.sums(of_c, 3) : side.elements(of_c, 3);
    if (options.beta == 0) fill(side.dev, c.mut(), NAN);  // never read
    const auto bias = has_bias ? side.sums({n}, 4) : side.sums({0}, 4);
    gemm(side.dev, side.elements(a, 1), side.elements(b, 2), c.mut(), options,
         has_bias ? bias.view() : ConstView<decltype(side.dev)>());
    return side.results(c);
  });
  CHECK(relative_error(got[0], expected[0]) < (wide_c && is_16_bit<T> ? 2e-6 : tolerance<T>));
}

}  // namespace

TEST_CASE_TEMPLATE("fallback gemm agrees with the Cpu for transposes, scales, bias and odd sizes",
                   T, double, float, bf16, f16) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      same_product<T>(67, 65, 33, {.transpose_a = ta, .transpose_b = tb}, false, false);
  for (const bool ta : {false, true})
    same_product<T>(67, 65, 33, {.transpose_a = ta, .beta = 0.5, .padded = true}, true, true);
  same_product<T>(1, 130, 7, {.alpha = 0.5}, false, true);
  same_product<T>(64, 64, 16, {.alpha = 2, .beta = -0.5}, true, true);
  same_product<T>(64, 64, 16, {.beta = 1}, true, false);
  same_product<T>(5, 3, 0, {.beta = 0.5}, false, true);
}

TEST_CASE_TEMPLATE("fallback convolutions and their gradients agree with the Cpu", T, double, float,
                   bf16, f16) {
  Sides<T> sides;
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
    const auto [got, expected] = sides([&](auto& side) -> Results {
      auto y = side.fresh(y_shape), dx = side.fresh(each.x), dw = side.sums(w, 4);
      auto added = side.elements(each.x, 5);
      const auto x = side.elements(each.x, 1), weights = side.elements(w, 2),
                 dy = side.elements(y_shape, 3);
      conv2d_forward(side.dev, x, weights, each.geometry, y.mut());
      conv2d_backward_data(side.dev, dy, weights, each.geometry, dx.mut());
      conv2d_backward_data(side.dev, dy, weights, each.geometry, added.mut(), 0.5);
      conv2d_backward_filter(side.dev, x, dy, each.geometry, dw.mut(), 0.5);
      return side.results(y, dx, dw, added);
    });
    CHECK(relative_error(got[0], expected[0]) < tolerance<T>);
    CHECK(relative_error(got[1], expected[1]) < tolerance<T>);
    CHECK(relative_error(got[2], expected[2]) < 2 * tolerance<Accumulator<T>>);
    CHECK(relative_error(got[3], expected[3]) < tolerance<T>);
  }
}
