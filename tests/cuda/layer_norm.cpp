// Layer normalisation: rows for one warp, rows for a block, widths and addresses that packs cannot read.
#include <dhp/cpu/layer_norm.hpp>
#include <dhp/cuda/layer_norm.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

template <class T>
Tensor<Gpu> fresh_on(Gpu& gpu, const Shape& shape) {
  return Tensor<Gpu>(gpu, dtype_of<T>(), shape);
}
Tensor<Cpu> fresh(Cpu& cpu, const Shape& shape) { return Tensor<Cpu>(cpu, DType::f64, shape); }

// The rows start `skip` elements into x.
template <class T>
void check_forward(const Shape& shape, std::int64_t skip = 0) {
  using A = Accumulator<T>;
  CAPTURE(to_text(shape));
  Gpu gpu;
  Cpu cpu;
  const Shape all{shape.count() + skip}, per_column{shape.back()}, per_row{shape.rows()};
  auto y = fresh_on<T>(gpu, shape);
  auto mean = fresh_on<A>(gpu, per_row), inv_std = fresh_on<A>(gpu, per_row);
  layer_norm_forward(gpu, random_on<T>(gpu, all, 1).view().slice(skip, all[0]).as(shape),
                     random_on<A>(gpu, per_column, 2), random_on<A>(gpu, per_column, 3), 1e-2,
                     y.mut(), mean.mut(), inv_std.mut());
  auto right_y = fresh(cpu, shape), right_mean = fresh(cpu, per_row),
       right_inv_std = fresh(cpu, per_row);
  layer_norm_forward(cpu, oracle_of<T>(cpu, all, 1).view().slice(skip, all[0]).as(shape),
                     oracle_of<A>(cpu, per_column, 2), oracle_of<A>(cpu, per_column, 3), 1e-2,
                     right_y.mut(), right_mean.mut(), right_inv_std.mut());
  CHECK(relative_error(widened(gpu, y), widened(right_y)) <= tolerance<T>);
  CHECK(distance(widened(gpu, mean), widened(right_mean)) <= tolerance<A>);
  CHECK(relative_error(widened(gpu, inv_std), widened(right_inv_std)) <= tolerance<A>);
}

// The rows of dy start `skip` elements into it; dx overwrites dy where `in_place`.
template <class T>
void check_backward(const Shape& shape, std::int64_t skip = 0, bool in_place = false) {
  using A = Accumulator<T>;
  CAPTURE(to_text(shape));
  Gpu gpu;
  Cpu cpu;
  const Shape all{shape.count() + skip}, per_column{shape.back()}, per_row{shape.rows()};
  const auto part = [&](auto view) { return view.slice(skip, all[0]).as(shape); };
  auto dy = random_on<T>(gpu, all, 1), dx = fresh_on<T>(gpu, shape);
  const auto x = random_on<T>(gpu, shape, 2);
  const auto mean = random_on<A>(gpu, per_row, 4), inv_std = random_on<A>(gpu, per_row, 5);
  auto dgamma = random_on<A>(gpu, per_column, 6);
  layer_norm_backward_gamma(gpu, part(dy.view()), x, mean, inv_std, dgamma.mut(), 0.5);
  layer_norm_backward_data(gpu, part(dy.view()), x, random_on<A>(gpu, per_column, 3), mean, inv_std,
                           in_place ? part(dy.mut()) : dx.mut());
  if (in_place) gpu.copy(dx.mut().bytes(), part(dy.view()).bytes(), dx.size_bytes());

  const auto right_dy = oracle_of<T>(cpu, all, 1), right_x = oracle_of<T>(cpu, shape, 2);
  const auto right_mean = oracle_of<A>(cpu, per_row, 4),
             right_inv_std = oracle_of<A>(cpu, per_row, 5);
  auto right_dgamma = oracle_of<A>(cpu, per_column, 6), right_dx = fresh(cpu, shape);
  layer_norm_backward_gamma(cpu, part(right_dy.view()), right_x, right_mean, right_inv_std,
                            right_dgamma.mut(), 0.5);
  layer_norm_backward_data(cpu, part(right_dy.view()), right_x, oracle_of<A>(cpu, per_column, 3),
                           right_mean, right_inv_std, right_dx.mut());
  CHECK(relative_error(widened(gpu, dx), widened(right_dx)) <= tolerance<T>);
  const double size = 4 * std::sqrt(static_cast<double>(shape.rows())) + 4;  // sums may cancel
  CHECK(distance(widened(gpu, dgamma), widened(right_dgamma), size) <= tolerance<A>);
}

}  // namespace

TEST_CASE_TEMPLATE("rows in a warp's registers agree with the Cpu", T, double, float, bf16, f16) {
  constexpr std::int64_t n = cuda::pack_size<Accumulator<T>>;
  for (const std::int64_t packs : {1, 31, 64, 97, 192, 256}) {
    const std::int64_t rows = packs == 31 ? 19 : 3;
    check_forward<T>({rows, packs * n});
    check_backward<T>({rows, packs * n}, 0, packs == 97);
  }
}

TEST_CASE_TEMPLATE("long and odd rows, shared by a block, agree with the Cpu", T, double, float,
                   bf16, f16) {
  constexpr std::int64_t n = cuda::pack_size<Accumulator<T>>;
  for (const auto& shape :
       {Shape{2, 257 * n}, {1, 700 * n}, {2, 3, 1}, {5, 3}, {3, 33}, {2, 1001}}) {
    check_forward<T>(shape);
    check_backward<T>(shape, 0, shape.back() == 33);
  }
}

TEST_CASE_TEMPLATE("rows at addresses that packs cannot read", T, double, float, bf16, f16) {
  check_forward<T>({3, 64}, 1);
  check_backward<T>({3, 64}, 1);
  check_backward<T>({3, 64}, 1, true);
}

TEST_CASE("no rows: nothing but dgamma is written") {
  check_forward<float>({0, 8});
  check_backward<float>({0, 8});
}

TEST_CASE("more rows than warps of the grid") { check_forward<float>({132 * 16 * 4 + 5, 4}); }

TEST_CASE("the variance keeps its digits where the mean is large") {
  Gpu gpu;
  const std::vector<float> values{4000, 4001, 3999, 4000}, zero(4, 0.0f), one(4, 1.0f);
  Tensor<Gpu> y(gpu, DType::f32, {1, 4});
  Tensor<Gpu> mean(gpu, DType::f32, {1}), inv_std(gpu, DType::f32, {1});
  layer_norm_forward(gpu, Tensor<Gpu>::from_host(gpu, {1, 4}, values),
                     Tensor<Gpu>::from_host(gpu, {4}, one), Tensor<Gpu>::from_host(gpu, {4}, zero),
                     0.5, y.mut(), mean.mut(), inv_std.mut());
  CHECK(widened(gpu, mean)[0] == 4000);
  CHECK(widened(gpu, inv_std)[0] == 1);
  CHECK(widened(gpu, y) == std::vector<double>{0, 1, -1, 0});
}
