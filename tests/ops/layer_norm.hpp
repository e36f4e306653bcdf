// Cases of layer normalization on any device: alone, as RMS norm, and after a residual and dropout.
#pragma once

#include <dhp/ops/dropout.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/layer_norm.hpp>
#include <tests/support/sides.hpp>

namespace tests {

struct NormCase {
  Shape shape;
  std::int64_t skip = 0;  ///< offset of the rows of x and of dy
  bool in_place = false;  ///< dx overwrites dy
  bool rms = false;       ///< RMS norm
  double beta = 0.5;      ///< of the sums
};

/// Returns a view of `shape` that starts `skip` elements into a tensor.
inline auto part_of(const Shape& shape, std::int64_t skip) {
  return [=](auto view) { return view.slice(skip, skip + shape.count()).as(shape); };
}

/// Returns y, inv_std, dx, dgamma, and without rms dbeta and mean.
Results norm_results(auto& side, const NormCase& each) {
  const auto& shape = each.shape;
  const Shape per_column{shape.back()}, per_row{shape.rows()}, all{shape.count() + each.skip};
  const auto part = part_of(shape, each.skip);
  const auto x = side.elements(all, 1), gamma = side.sums(per_column, 3);
  auto dy = side.elements(all, 2), y = side.fresh(shape), apart = side.fresh(shape);
  auto mean = side.fresh_sums(per_row), inv_std = side.fresh_sums(per_row);
  auto dgamma = side.sums(per_column, 6), dbeta = side.sums(per_column, 7);
  if (each.beta == 0)  // beta 0: not read
    for (auto* sums : {&dgamma, &dbeta}) fill(side.dev, sums->mut(), NAN);
  const auto dx = each.in_place ? part(dy.mut()) : apart.mut();
  if (each.rms) {
    detail::rms_norm_forward(side.dev, part(x.view()), gamma, 1e-2, y.mut(), inv_std.mut());
    detail::rms_norm_backward(side.dev, part(dy.view()), part(x.view()), gamma,
                              side.sums(per_row, 5), dx, dgamma.mut(), each.beta);
    return side.results(y, inv_std, dx, dgamma);
  }
  layer_norm_forward(side.dev, part(x.view()), gamma, side.sums(per_column, 8), 1e-2, y.mut(),
                     mean.mut(), inv_std.mut());
  layer_norm_backward(side.dev, part(dy.view()), part(x.view()), gamma, side.sums(per_row, 4),
                      side.sums(per_row, 5), dx, dgamma.mut(), dbeta.mut(), each.beta);
  return side.results(y, inv_std, dx, dgamma, dbeta, mean);
}
/// Returns the scale of errors of sums over rows: the terms may cancel, so the sum itself may be small.
inline double size_of_sums(const Shape& shape) {
  return 4 * std::sqrt(static_cast<double>(shape.rows())) + 4;
}

template <class T, class Dev>
void check_norm(const NormCase& each) {
  using A = Accumulator<T>;
  CAPTURE(to_text(each.shape));
  const auto [got, expected] =
      Sides<T, Dev>()([&](auto& side) { return norm_results(side, each); });
  const double size = size_of_sums(each.shape);
  CHECK(relative_error(got[0], expected[0]) <= tolerance<T>);
  CHECK(relative_error(got[1], expected[1]) <= tolerance<A>);
  CHECK(relative_error(got[2], expected[2]) <= tolerance<T>);
  CHECK(distance(got[3], expected[3], size) <= tolerance<A>);
  if (each.rms) return;
  CHECK(distance(got[4], expected[4], size) <= tolerance<A>);
  CHECK(distance(got[5], expected[5]) <= tolerance<A>);
}

struct ResidualCase {
  enum Over { nothing, x, residual, y };
  Shape shape;
  double p = 0.3;
  std::int64_t skip = 0;  ///< offset of the rows of x and of dy
  /// The tensor that the sum overwrites. Unless it is `nothing`, both gradients overwrite their inputs, too.
  Over over = nothing;
  bool numbered = false;  ///< rows have given numbers
  RandomStream random{.seed = 0x123456789abcdefu, .series = 3, .use = 5};
};

/// The operands of both passes over a residual, dropout and a norm.
template <class Side_>
struct ResidualRun {
  using Dev = decltype(Side_::dev);
  ResidualRun(Side_& on, const ResidualCase& of) : side(on), each(of) {
    for (std::int64_t row = 0; row < each.shape.rows(); ++row)
      numbers.push_back(row * row * 1000003);
    index = side.tensor(per_row, numbers);
    if (each.numbered) rows.index = index.view();
  }

  Results fused() {
    auto to_sum = side.fresh(shape), to_both = side.fresh(shape), to_x = side.fresh(shape);
    const bool apart = each.over == ResidualCase::nothing;
    const auto sum = apart                          ? to_sum.mut()
                     : each.over == ResidualCase::x ? part(x.mut())
                     : each.over == ResidualCase::y ? y.mut()
                                                    : residual.mut();
    detail::residual_layer_norm_forward(side.dev, part(x.view()), residual, rows, options, gamma,
                                        beta, 1e-2, sum, y.mut(), mean.mut(), inv_std.mut());
    Results found{each.over == ResidualCase::y ? std::vector<double>() : side.values(sum)};
    const auto both = apart ? to_both.mut() : part(dy.mut());
    const auto dx = apart ? to_x.mut() : from.mut();
    detail::residual_layer_norm_backward(side.dev, part(dy.view()), from, gamma, means, inverses,
                                         rows, options, both, dx, dgamma.mut(), dbeta.mut(), 0);
    for (auto& each_result : side.results(y, mean, inv_std, both, dx, dgamma, dbeta))
      found.push_back(std::move(each_result));
    return found;
  }
  /// Computes the same by dropout, a sum and a norm. The last result is x after dropout.
  Results unfused() {
    auto dropped = side.fresh(shape), sum = side.fresh(shape), both = side.fresh(shape),
         dx = side.fresh(shape);
    dropout(side.dev, part(x.view()), rows, options, dropped.mut());
    add(side.dev, dropped, residual, sum.mut());
    layer_norm_forward(side.dev, sum, gamma, beta, 1e-2, y.mut(), mean.mut(), inv_std.mut());
    layer_norm_backward(side.dev, part(dy.view()), from, gamma, means, inverses, both.mut(),
                        dgamma.mut(), dbeta.mut(), 0);
    dropout(side.dev, both, rows, options, dx.mut());
    return side.results(sum, y, mean, inv_std, both, dx, dgamma, dbeta, dropped);
  }

  Side_& side;
  const ResidualCase& each;
  const Shape& shape = each.shape;
  const Shape per_column{shape.back()}, per_row{shape.rows()}, all{shape.count() + each.skip};
  DropoutOptions options{
      .probability = each.p, .random = each.random, .total_columns = shape.back()};
  std::vector<std::int64_t> numbers{};
  Tensor<Dev> index{};
  detail::RowNumbers<Dev> rows{.first = 77};
  Tensor<Dev> x = side.elements(all, 1), residual = side.elements(shape, 2),
              gamma = side.sums(per_column, 3), beta = side.sums(per_column, 4),
              dy = side.elements(all, 5), from = side.elements(shape, 6),
              means = side.sums(per_row, 7), inverses = side.sums(per_row, 8);
  Tensor<Dev> y = side.fresh(shape), mean = side.fresh_sums(per_row),
              inv_std = side.fresh_sums(per_row), dgamma = side.fresh_sums(per_column),
              dbeta = side.fresh_sums(per_column);
  decltype(part_of({}, 0)) part = part_of(shape, each.skip);
};
Results residual_results(auto& side, const ResidualCase& each) {
  return ResidualRun(side, each).fused();
}

template <class T, class Dev>
void check_residual(const ResidualCase& each) {
  using A = Accumulator<T>;
  const auto& shape = each.shape;
  INFO("shape ", to_text(shape), " each.p ", each.p);
  Sides<T, Dev> sides;
  const auto apart = [&] {
    auto plain = each;
    plain.over = ResidualCase::nothing;
    return residual_results(sides.tested, plain);
  }();
  if (each.over != ResidualCase::nothing) {
    auto over = residual_results(sides.tested, each);
    if (each.over == ResidualCase::y) over[0] = apart[0];
    CHECK(over == apart);
  }
  const auto expected = ResidualRun(sides.oracle, each).unfused();
  const double size = size_of_sums(shape);
  for (const std::size_t at : {6, 7})
    CHECK(distance(apart[at], expected[at], size) <= tolerance<A>);
  for (const std::size_t at : {0, 4, 5})
    CHECK(relative_error(apart[at], expected[at]) <= tolerance<T>);
  // Where x is dropped, the sum is the residual, unchanged.
  const auto residual = sides.oracle.values(sides.oracle.elements(shape, 2).view());
  for (std::size_t at = 0; at < residual.size(); ++at)
    if (expected[8][at] == 0) CHECK(apart[0][at] == residual[at]);
  // The norm must be that of the rounded sum.
  auto& oracle = sides.oracle;
  const Shape per_column{shape.back()}, per_row{shape.rows()};
  auto y = oracle.fresh(shape);
  auto mean = oracle.fresh_sums(per_row), inv_std = oracle.fresh_sums(per_row);
  layer_norm_forward(oracle.dev, oracle.tensor(shape, apart[0]), oracle.sums(per_column, 3),
                     oracle.sums(per_column, 4), 1e-2, y.mut(), mean.mut(), inv_std.mut());
  CHECK(relative_error(apart[1], widened(y)) <= tolerance<T>);
  CHECK(distance(apart[2], widened(mean)) <= tolerance<A>);
  CHECK(relative_error(apart[3], widened(inv_std)) <= tolerance<A>);
}

template <class Dev>
void check_digits_of_large_means() {
  Side<float, Dev> side{tested_device<Dev>()};
  const auto x = side.exactly({1, 4}, {4000, 4001, 3999, 4000});
  const auto zero = side.exactly({4}, {0, 0, 0, 0}), one = side.exactly({4}, {1, 1, 1, 1});
  auto y = side.fresh({1, 4}), mean = side.fresh({1}), inv_std = side.fresh({1});
  layer_norm_forward(side.dev, x, one, zero, 0.5, y.mut(), mean.mut(), inv_std.mut());
  CHECK(side.results(mean, inv_std, y) == Results{{4000}, {1}, {0, 1, -1, 0}});
}

}  // namespace tests
