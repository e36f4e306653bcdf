// Layer normalization, alone and after residual + dropout: rows for a warp or for a block, aligned and unaligned.
#include <dhp/cpu/layer_norm.hpp>
#include <dhp/cuda/layer_norm.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

// Returns a view of `shape` that starts `skip` elements into a tensor.
auto part_of(const Shape& shape, std::int64_t skip) {
  return [=](auto view) { return view.slice(skip, skip + shape.count()).as(shape); };
}

struct Case {
  Shape shape;
  std::int64_t skip = 0;  ///< offset of the rows of x and of dy
  bool in_place = false;  ///< dx overwrites dy
  bool rms = false;       ///< RMS norm
};

template <class T>
void check_norm(const Case& each) {
  using A = Accumulator<T>;
  const auto& shape = each.shape;
  CAPTURE(to_text(shape));
  const auto [got, expected] = with_oracle<T>([&](auto& side) -> Results {
    const Shape per_column{shape.back()}, per_row{shape.rows()}, all{shape.count() + each.skip};
    const auto part = part_of(shape, each.skip);
    const auto x = side.elements(all, 1), gamma = side.sums(per_column, 3);
    auto dy = side.elements(all, 2), y = side.fresh(shape), apart = side.fresh(shape);
    auto mean = side.fresh_sums(per_row), inv_std = side.fresh_sums(per_row);
    auto dgamma = side.sums(per_column, 6), dbeta = side.sums(per_column, 7);
    const auto dx = each.in_place ? part(dy.mut()) : apart.mut();
    if (each.rms) {
      detail::rms_norm_forward(side.dev, part(x.view()), gamma, 1e-2, y.mut(), inv_std.mut());
      detail::rms_norm_backward(side.dev, part(dy.view()), part(x.view()), gamma,
                                side.sums(per_row, 5), dx, dgamma.mut(), 0.5);
      return side.results(y, inv_std, dx, dgamma);
    }
    layer_norm_forward(side.dev, part(x.view()), gamma, side.sums(per_column, 8), 1e-2, y.mut(),
                       mean.mut(), inv_std.mut());
    layer_norm_backward(side.dev, part(dy.view()), part(x.view()), gamma, side.sums(per_row, 4),
                        side.sums(per_row, 5), dx, dgamma.mut(), dbeta.mut(), 0.5);
    return side.results(y, inv_std, dx, dgamma, dbeta, mean);
  });
  const double size = 4 * std::sqrt(static_cast<double>(shape.rows())) + 4;  // sums may cancel
  CHECK(relative_error(got[0], expected[0]) <= tolerance<T>);
  CHECK(relative_error(got[1], expected[1]) <= tolerance<A>);
  CHECK(relative_error(got[2], expected[2]) <= tolerance<T>);
  CHECK(distance(got[3], expected[3], size) <= tolerance<A>);
  if (each.rms) return;
  CHECK(distance(got[4], expected[4], size) <= tolerance<A>);
  CHECK(distance(got[5], expected[5]) <= tolerance<A>);
}

struct ResidualCase {
  Shape shape;
  double p = 0.3;
  std::int64_t skip = 0;  ///< offset of the rows of x and of dy
  /// The sum overwrites x, the residual's gradient overwrites dy, and x's gradient overwrites the sum.
  bool in_place = false;
  bool numbered = false;  ///< rows have given numbers
};

template <class T>
void check_residual(const ResidualCase& each) {
  using A = Accumulator<T>;
  const auto& shape = each.shape;
  INFO("shape ", to_text(shape), " each.p ", each.p);
  const Shape per_column{shape.back()}, per_row{shape.rows()};
  const DropoutOptions options{.probability = each.p,
                               .random = {.seed = 0x123456789abcdefu, .series = 3, .use = 5},
                               .total_columns = shape.back()};
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < shape.rows(); ++row) numbers.push_back(row * row * 1000003);
  const auto [got, expected] = with_oracle<T>([&](auto& side) -> Results {
    const auto part = part_of(shape, each.skip);
    const Shape all{shape.count() + each.skip};
    const auto index = side.tensor(per_row, numbers);
    const auto rows = [&] {
      detail::RowNumbers<decltype(side.dev)> result{.first = 77};
      if (each.numbered) result.index = index.view();
      return result;
    }();
    auto x = side.elements(all, 1), dy = side.elements(all, 5), from = side.elements(shape, 6);
    auto apart = side.fresh(shape), y = side.fresh(shape), dresidual = side.fresh(shape),
         dx = side.fresh(shape);
    auto mean = side.fresh_sums(per_row), inv_std = side.fresh_sums(per_row);
    const auto sum = each.in_place ? part(x.mut()) : apart.mut();
    detail::residual_layer_norm_forward(side.dev, part(x.view()), side.elements(shape, 2), rows,
                                        options, side.sums(per_column, 3), side.sums(per_column, 4),
                                        1e-2, sum, y.mut(), mean.mut(), inv_std.mut());
    const auto to = each.in_place ? part(dy.mut()) : dresidual.mut();
    const auto to_x = each.in_place ? from.mut() : dx.mut();
    auto dgamma = side.fresh_sums(per_column), dbeta = side.fresh_sums(per_column);
    detail::residual_layer_norm_backward(side.dev, part(dy.view()), from, side.sums(per_column, 3),
                                         side.sums(per_row, 7), side.sums(per_row, 8), rows,
                                         options, to, to_x, dgamma.mut(), dbeta.mut(), 0);
    return side.results(sum, y, mean, inv_std, to, to_x, dgamma, dbeta);
  });
  const double size = 4 * std::sqrt(static_cast<double>(shape.rows())) + 4;  // sums may cancel
  for (const std::size_t at : {6, 7}) CHECK(distance(got[at], expected[at], size) <= tolerance<A>);
  CHECK(relative_error(got[0], expected[0]) <= tolerance<T>);
  CHECK(relative_error(got[4], expected[4]) <= tolerance<T>);
  CHECK(relative_error(got[5], expected[5]) <= tolerance<T>);
  // The norm must be that of the rounded sum.
  Side<T, Cpu, true> oracle;
  auto y = oracle.fresh(shape);
  auto mean = oracle.fresh_sums(per_row), inv_std = oracle.fresh_sums(per_row);
  layer_norm_forward(oracle.dev, oracle.tensor(shape, got[0]), oracle.sums(per_column, 3),
                     oracle.sums(per_column, 4), 1e-2, y.mut(), mean.mut(), inv_std.mut());
  CHECK(relative_error(got[1], widened(y)) <= tolerance<T>);
  CHECK(distance(got[2], widened(mean)) <= tolerance<A>);
  CHECK(relative_error(got[3], widened(inv_std)) <= tolerance<A>);
}

}  // namespace

TEST_CASE_TEMPLATE("layer norm: rows in a warp's registers agree with the Cpu", T, double, float,
                   bf16, f16) {
  constexpr std::int64_t n = detail::cuda::pack_size<Accumulator<T>>;
  for (const std::int64_t packs : {1, 31, 64, 97, 192, 256}) {
    const std::int64_t rows = packs == 31 ? 19 : 3;
    check_norm<T>({.shape = {rows, packs * n}, .in_place = packs == 97});
  }
}

TEST_CASE_TEMPLATE("RMS norm: rows of every kind agree with the Cpu", T, double, float, bf16, f16) {
  constexpr std::int64_t n = detail::cuda::pack_size<Accumulator<T>>;
  for (const auto& shape :
       {Shape{19, 31 * n}, {3, 97 * n}, {2, 257 * n}, {5, 3}, {2, 1001}, {0, 8}})
    check_norm<T>({.shape = shape, .in_place = shape.back() == 97 * n, .rms = true});
}

TEST_CASE_TEMPLATE("layer norm: long and odd rows, shared by a block, agree with the Cpu", T,
                   double, float, bf16, f16) {
  constexpr std::int64_t n = detail::cuda::pack_size<Accumulator<T>>;
  for (const auto& shape : {Shape{2, 257 * n}, {1, 700 * n}, {2, 3, 1}, {5, 3}, {3, 33}, {2, 1001}})
    check_norm<T>({.shape = shape, .in_place = shape.back() == 33});
}

TEST_CASE_TEMPLATE("layer norm: rows at unaligned addresses agree with the Cpu", T, double, float,
                   bf16, f16) {
  for (const bool in_place : {false, true})
    check_norm<T>({.shape = {3, 64}, .skip = 1, .in_place = in_place});
}

TEST_CASE_TEMPLATE("residual layer norm: rows of every kind agree with the Cpu", T, double, float,
                   bf16, f16) {
  constexpr std::int64_t n = detail::cuda::pack_size<Accumulator<T>>;
  for (const std::int64_t packs : {1, 31, 64, 97, 192, 256})
    check_residual<T>({.shape = {3, packs * n}, .in_place = packs == 97, .numbered = packs == 31});
  for (const auto& shape : {Shape{2, 257 * n}, {2, 3, 1}, {5, 3}, {3, 34}, {2, 1001}})
    check_residual<T>(
        {.shape = shape, .in_place = shape.back() > 34, .numbered = shape.back() == 3});
  check_residual<T>({.shape = {3, 64}, .skip = 1});
  check_residual<T>({.shape = {3, 64}, .skip = 1, .in_place = true});
  for (const std::int64_t columns : {64, 33}) check_residual<T>({.shape = {3, columns}, .p = 0});
}

TEST_CASE("residual layer norm: works for no rows, and for more rows than warps") {
  check_residual<float>({.shape = {0, 8}});
  check_residual<float>({.shape = {132 * 16 * 4 + 5, 4}});
}

TEST_CASE("residual layer norm: the sum may overwrite y, and the step is read on the device") {
  Side<float, Gpu> side;
  const auto step = side.tensor({1}, std::vector<std::int32_t>{7});
  for (const std::int64_t columns : {64, 1200, 33}) {
    const Shape shape{3, columns};
    const auto run = [&](bool into_y, bool read) {
      DropoutOptions options{.probability = 0.5, .random = {.series = 7}, .total_columns = columns};
      if (read)
        options.random = {.series_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes())};
      auto sum = side.fresh(shape), y = side.fresh(shape), mean = side.fresh({3}),
           inv_std = side.fresh({3});
      detail::residual_layer_norm_forward(
          side.dev, side.elements(shape, 1), side.elements(shape, 2), {}, options,
          side.elements({columns}, 3), side.elements({columns}, 4), 1e-2,
          into_y ? y.mut() : sum.mut(), y.mut(), mean.mut(), inv_std.mut());
      return side.values(y.view());
    };
    CHECK(run(true, false) == run(false, false));
    CHECK(run(false, true) == run(false, false));
  }
}

TEST_CASE("layer norm: works for no rows, and for more than the grid has warps or blocks") {
  check_norm<float>({{0, 8}});  // only the sums are written
  check_norm<float>({{132 * 16 * 4 + 5, 4}});
  check_norm<float>({{132 * 16 + 5, 3}});  // 3 columns: one block per row
}

TEST_CASE("layer norm: the variance keeps its digits for a large mean") {
  Side<float, Gpu> side;
  const auto x = side.tensor({1, 4}, std::vector<float>{4000, 4001, 3999, 4000});
  const auto zero = side.tensor({4}, std::vector(4, 0.0f)),
             one = side.tensor({4}, std::vector(4, 1.0f));
  auto y = side.fresh({1, 4}), mean = side.fresh({1}), inv_std = side.fresh({1});
  layer_norm_forward(side.dev, x, one, zero, 0.5, y.mut(), mean.mut(), inv_std.mut());
  CHECK(side.values(mean.view())[0] == 4000);
  CHECK(side.values(inv_std.view())[0] == 1);
  CHECK(side.values(y.view()) == std::vector<double>{0, 1, -1, 0});
}
