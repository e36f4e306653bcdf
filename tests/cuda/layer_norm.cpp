// Layer normalisation, alone and of residual + dropout: rows for one warp, rows for a block, widths and addresses
// that packs cannot read.
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
  auto dgamma = random_on<A>(gpu, per_column, 6), dbeta = random_on<A>(gpu, per_column, 7);
  layer_norm_backward_sums(gpu, part(dy.view()), x, mean, inv_std, dgamma.mut(), dbeta.mut(), 0.5);
  layer_norm_backward_data(gpu, part(dy.view()), x, random_on<A>(gpu, per_column, 3), mean, inv_std,
                           in_place ? part(dy.mut()) : dx.mut());
  if (in_place) gpu.copy(dx.mut().bytes(), part(dy.view()).bytes(), dx.size_bytes());

  const auto right_dy = oracle_of<T>(cpu, all, 1), right_x = oracle_of<T>(cpu, shape, 2);
  const auto right_mean = oracle_of<A>(cpu, per_row, 4),
             right_inv_std = oracle_of<A>(cpu, per_row, 5);
  auto right_dgamma = oracle_of<A>(cpu, per_column, 6),
       right_dbeta = oracle_of<A>(cpu, per_column, 7), right_dx = fresh(cpu, shape);
  layer_norm_backward_sums(cpu, part(right_dy.view()), right_x, right_mean, right_inv_std,
                           right_dgamma.mut(), right_dbeta.mut(), 0.5);
  layer_norm_backward_data(cpu, part(right_dy.view()), right_x, oracle_of<A>(cpu, per_column, 3),
                           right_mean, right_inv_std, right_dx.mut());
  CHECK(relative_error(widened(gpu, dx), widened(right_dx)) <= tolerance<T>);
  const double size = 4 * std::sqrt(static_cast<double>(shape.rows())) + 4;  // sums may cancel
  CHECK(distance(widened(gpu, dgamma), widened(right_dgamma), size) <= tolerance<A>);
  CHECK(distance(widened(gpu, dbeta), widened(right_dbeta), size) <= tolerance<A>);
}

struct ResidualCase {
  Shape shape;
  double p = 0.3;
  std::int64_t skip = 0;  ///< where the rows of x and of dy start
  bool in_place =
      false;  ///< the sum over x, the gradient of the residual over dy, that of x over the sum
  bool numbered = false;  ///< rows have numbers of their own
};

template <class T>
void check_residual(const ResidualCase& each) {
  using A = Accumulator<T>;
  const auto& shape = each.shape;
  CAPTURE(to_text(shape));
  CAPTURE(each.p);
  Gpu gpu;
  Cpu cpu;
  const Shape all{shape.count() + each.skip}, per_column{shape.back()}, per_row{shape.rows()};
  const auto part = [&](auto view) { return view.slice(each.skip, all[0]).as(shape); };
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < shape.rows(); ++row) numbers.push_back(row * row * 1000003);
  const auto index = Tensor<Cpu>::from_host(cpu, per_row, numbers);
  const auto gpu_index = to_gpu(gpu, index);
  RowNumbers<Gpu> rows{.first = 77};
  RowNumbers<Cpu> right_rows{.first = 77};
  if (each.numbered) {
    rows.index = gpu_index.view();
    right_rows.index = index.view();
  }
  const DropoutOptions options{.probability = each.p,
                               .random = {.seed = 0x123456789abcdefu, .step = 3, .use = 5},
                               .total_columns = shape.back()};

  auto x = random_on<T>(gpu, all, 1);
  auto fresh_sum = fresh_on<T>(gpu, shape), y = fresh_on<T>(gpu, shape);
  auto mean = fresh_on<A>(gpu, per_row), inv_std = fresh_on<A>(gpu, per_row);
  residual_layer_norm_forward(gpu, part(x.view()), random_on<T>(gpu, shape, 2), rows, options,
                              random_on<A>(gpu, per_column, 3), random_on<A>(gpu, per_column, 4),
                              1e-2, each.in_place ? part(x.mut()) : fresh_sum.mut(), y.mut(),
                              mean.mut(), inv_std.mut());
  const auto sum =
      each.in_place ? clone(gpu, ConstView<Gpu>(part(x.view()))) : std::move(fresh_sum);
  auto right_sum = fresh(cpu, shape), right_y = fresh(cpu, shape);
  auto right_mean = fresh(cpu, per_row), right_inv_std = fresh(cpu, per_row);
  residual_layer_norm_forward(
      cpu, part(oracle_of<T>(cpu, all, 1).view()), oracle_of<T>(cpu, shape, 2), right_rows, options,
      oracle_of<A>(cpu, per_column, 3), oracle_of<A>(cpu, per_column, 4), 1e-2, right_sum.mut(),
      right_y.mut(), right_mean.mut(), right_inv_std.mut());
  CHECK(relative_error(widened(gpu, sum), widened(right_sum)) <= tolerance<T>);
  // The norm is that of the sum as it was rounded.
  const auto rounded = Tensor<Cpu>::from_host(cpu, shape, widened(gpu, sum));
  layer_norm_forward(cpu, rounded, oracle_of<A>(cpu, per_column, 3),
                     oracle_of<A>(cpu, per_column, 4), 1e-2, right_y.mut(), right_mean.mut(),
                     right_inv_std.mut());
  CHECK(relative_error(widened(gpu, y), widened(right_y)) <= tolerance<T>);
  CHECK(distance(widened(gpu, mean), widened(right_mean)) <= tolerance<A>);
  CHECK(relative_error(widened(gpu, inv_std), widened(right_inv_std)) <= tolerance<A>);

  auto dy = random_on<T>(gpu, all, 5), from = random_on<T>(gpu, shape, 6);
  auto dresidual = fresh_on<T>(gpu, shape), dx = fresh_on<T>(gpu, shape);
  residual_layer_norm_backward_data(gpu, part(dy.view()), from, random_on<A>(gpu, per_column, 3),
                                    random_on<A>(gpu, per_row, 7), random_on<A>(gpu, per_row, 8),
                                    rows, options, each.in_place ? part(dy.mut()) : dresidual.mut(),
                                    each.in_place ? from.mut() : dx.mut());
  if (each.in_place) {
    gpu.copy(dresidual.mut().bytes(), part(dy.view()).bytes(), dresidual.size_bytes());
    dx = std::move(from);
  }
  auto right_dresidual = fresh(cpu, shape), right_dx = fresh(cpu, shape);
  residual_layer_norm_backward_data(cpu, part(oracle_of<T>(cpu, all, 5).view()),
                                    oracle_of<T>(cpu, shape, 6), oracle_of<A>(cpu, per_column, 3),
                                    oracle_of<A>(cpu, per_row, 7), oracle_of<A>(cpu, per_row, 8),
                                    right_rows, options, right_dresidual.mut(), right_dx.mut());
  CHECK(relative_error(widened(gpu, dresidual), widened(right_dresidual)) <= tolerance<T>);
  CHECK(relative_error(widened(gpu, dx), widened(right_dx)) <= tolerance<T>);
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

TEST_CASE_TEMPLATE("residual: rows of every kind agree with the Cpu", T, double, float, bf16, f16) {
  constexpr std::int64_t n = cuda::pack_size<Accumulator<T>>;
  for (const std::int64_t packs : {1, 31, 64, 97, 192, 256})
    check_residual<T>({.shape = {3, packs * n}, .in_place = packs == 97, .numbered = packs == 31});
  for (const auto& shape : {Shape{2, 257 * n}, {2, 3, 1}, {5, 3}, {3, 34}, {2, 1001}})
    check_residual<T>(
        {.shape = shape, .in_place = shape.back() > 34, .numbered = shape.back() == 3});
  check_residual<T>({.shape = {3, 64}, .skip = 1});
  check_residual<T>({.shape = {3, 64}, .skip = 1, .in_place = true});
  for (const std::int64_t columns : {64, 33}) check_residual<T>({.shape = {3, columns}, .p = 0});
}

TEST_CASE("residual: no rows; more rows than warps of the grid") {
  check_residual<float>({.shape = {0, 8}});
  check_residual<float>({.shape = {132 * 16 * 4 + 5, 4}});
}

TEST_CASE("residual: the sum may be written into y; the step is read on the device") {
  Gpu gpu;
  Cpu cpu;
  const auto step = to_gpu(gpu, Tensor<Cpu>::from_host(cpu, {1}, std::vector<std::int32_t>{7}));
  for (const std::int64_t columns : {64, 1200, 33}) {
    const Shape shape{3, columns};
    const auto run = [&](bool into_y, bool read) {
      DropoutOptions options{.probability = 0.5, .random = {.step = 7}, .total_columns = columns};
      if (read)
        options.random = {.step_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes())};
      auto sum = fresh_on<float>(gpu, shape), y = fresh_on<float>(gpu, shape);
      auto mean = fresh_on<float>(gpu, {3}), inv_std = fresh_on<float>(gpu, {3});
      residual_layer_norm_forward(
          gpu, random_on<float>(gpu, shape, 1), random_on<float>(gpu, shape, 2), {}, options,
          random_on<float>(gpu, {columns}, 3), random_on<float>(gpu, {columns}, 4), 1e-2,
          into_y ? y.mut() : sum.mut(), y.mut(), mean.mut(), inv_std.mut());
      return widened(gpu, y);
    };
    CHECK(run(true, false) == run(false, false));
    CHECK(run(false, true) == run(false, false));
  }
}

TEST_CASE("no rows: nothing but the sums is written") {
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
