// Cases of batch normalization on any device.
#pragma once

#include <dhp/ops/batch_norm.hpp>
#include <dhp/ops/elementwise.hpp>
#include <tests/support/sides.hpp>

namespace tests {

/// Tensors of the size of x start `skip` elements into their memory.
struct BatchNormCase {
  Shape shape;
  std::int64_t skip = 0;
  bool relu = false;  ///< behind the norm
  /// The number of rows on about three ranks like this one.
  [[nodiscard]] double count() const { return 3.0 * static_cast<double>(shape.rows()) + 1; }
};
/// The random operands of a case.
template <class Side_>
struct BatchNormOperands {
  BatchNormOperands(Side_& side, const BatchNormCase& each)
      : all{each.shape.count() + each.skip},
        columns{each.shape.back()},
        x(side.elements(all, 1)),
        dy(side.elements(all, 2)),
        residual(side.elements(all, 9)),
        y(side.elements(all, 10)),
        mean(side.sums(columns, 3)),
        inv_std(side.sums(columns, 4)),
        gamma(side.sums(columns, 5)),
        beta(side.sums(columns, 6)),
        sum(side.sums(columns, 7)),
        product(side.sums(columns, 8)) {}
  [[nodiscard]] auto vectors() const {
    return detail::BatchNormVectors<decltype(Side_::dev)>{mean, inv_std, gamma, beta};
  }
  Shape all, columns;
  Tensor<decltype(Side_::dev)> x, dy, residual, y, mean, inv_std, gamma, beta, sum, product;
};

/// Returns the results of all operations.
Results batch_norm_results(auto& side, const BatchNormCase& each) {
  auto& dev = side.dev;
  const BatchNormOperands of(side, each);
  const auto vectors = of.vectors();
  const auto part = [&](auto view) { return view.slice(each.skip, of.all[0]).as(each.shape); };
  const auto x = part(of.x.view()), dy = part(of.dy.view());
  Results found;
  const auto keep = [&](const auto&... tensors) {
    (found.push_back(side.values(tensors.view())), ...);
  };
  auto sum = side.fresh_sums(of.columns), product = side.fresh_sums(of.columns);
  column_sums(dev, x, sum.mut(), 0);
  detail::batch_norm_squared_deviations(dev, x, of.mean, product.mut());
  keep(sum, product);
  for (const bool gated : {false, true}) {
    detail::batch_norm_backward_sums(dev, dy, x, vectors, gated, sum.mut(), product.mut());
    keep(sum, product);
  }
  auto to = side.fresh(each.shape);
  detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), product.mut(),
                                   part(of.y.view()), to.mut());
  keep(sum, product, to);
  detail::batch_norm_apply(dev, x, vectors, {}, each.relu, to.mut());
  keep(to);
  detail::batch_norm_apply(dev, x, vectors, part(of.residual.view()), each.relu, to.mut());
  keep(to);
  for (const bool gated : {false, true}) {
    detail::batch_norm_backward_apply(dev, dy, x, vectors, gated, of.sum, of.product, each.count(),
                                      to.mut());
    keep(to);
  }
  return found;
}

template <class T, class Dev>
void check_batch_norm(const BatchNormCase& each) {
  using A = Accumulator<T>;
  INFO("shape ", to_text(each.shape), " skip ", each.skip);
  const auto [got, expected] =
      Sides<T, Dev>()([&](auto& side) { return batch_norm_results(side, each); });
  const double size = std::sqrt(static_cast<double>(each.shape.rows())) + 1;  // sums may cancel
  CHECK(distance(got[0], expected[0], size) <= tolerance<A> * 2);
  CHECK(relative_error(got[1], expected[1]) <= tolerance<A>);
  for (const std::size_t at : {2, 4, 6}) {  // no ReLU, ReLU, ReLU and residual
    CAPTURE(at);
    CHECK(distance(got[at], expected[at], size) <= tolerance<A> * 2);
    CHECK(distance(got[at + 1], expected[at + 1], size) <= tolerance<A> * 8);
  }
  CHECK(got[8] == expected[8]);
  for (std::size_t at = 9; at < got.size(); ++at) {
    CAPTURE(at);
    CHECK(relative_error(got[at], expected[at]) <= tolerance<T>);
  }
}

/// Checks that results may overwrite their inputs.
template <class T, class Dev>
void check_batch_norm_in_place(const Shape& shape) {
  Side<T, Dev> side{tested_device<Dev>()};
  auto& dev = side.dev;
  const BatchNormOperands of(side, {.shape = shape});
  const auto vectors = of.vectors();
  const auto x = of.x.view().as(shape), y = of.y.view().as(shape);
  /// Checks that run(in, out) gives the same apart and in place.
  const auto same = [&](const Tensor<Dev>& in, auto run) {
    auto out = side.fresh(shape), over = clone(dev, in.view().as(shape));
    const auto apart = run(in.view().as(shape), out.mut());
    CHECK(run(over.view(), over.mut()) == apart);
    CHECK(side.values(over.view()) == side.values(out.view()));
  };
  same(of.residual, [&](auto residual, auto out) {
    detail::batch_norm_apply(dev, x, vectors, residual, true, out);
    return Results();
  });
  same(of.dy, [&](auto dy, auto out) {
    auto sum = side.fresh_sums(of.columns), product = side.fresh_sums(of.columns);
    detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), product.mut(), y, out);
    return side.results(sum, product);
  });
  for (const bool gated : {false, true})
    same(of.dy, [&](auto dy, auto out) {
      detail::batch_norm_backward_apply(dev, dy, x, vectors, gated, of.sum, of.product, 7, out);
      return Results();
    });
}

/// Checks that ReLU maps negatives to 0 and keeps NaN, both without gradient.
template <class Dev>
void check_batch_norm_relu() {
  Side<float, Dev> side{tested_device<Dev>()};
  auto& dev = side.dev;
  const Shape row{1, 4};
  const auto x = side.exactly(row, {-1, -0.0, 2, NAN}), nothing = side.exactly(row, {0, 0, 0, 0}),
             dy = side.exactly(row, {1, 1, 1, 1}), zeros = side.exactly({4}, {0, 0, 0, 0}),
             ones = side.exactly({4}, {1, 1, 1, 1});
  const detail::BatchNormVectors<Dev> vectors{zeros, ones, ones, zeros};
  auto y = side.fresh(row), sum = side.fresh({4}), product = side.fresh({4});
  for (const bool residual : {false, true}) {
    detail::batch_norm_apply(dev, x, vectors, residual ? nothing.view() : ConstView<Dev>(), true,
                             y.mut());
    auto got = side.values(y.view());
    CHECK(std::isnan(got.back()));
    got.pop_back();
    CHECK(got == std::vector<double>{0, 0, 2});
    if (residual)
      detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), product.mut(), y,
                                       y.mut());
    else detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), product.mut());
    CHECK(side.values(sum.view()) == std::vector<double>{0, 0, 1, 0});
  }
  detail::batch_norm_apply(dev, x, vectors, {}, false, y.mut());
  CHECK(side.values(y.view())[0] == -1);
}

/// Checks that squared deviations keep their digits where the mean is large, and are 0 without rows.
template <class Dev>
void check_squared_deviations() {
  Side<float, Dev> side{tested_device<Dev>()};
  const auto mean = side.exactly({1}, {4000});
  const auto sum_of = [&](const std::vector<double>& values) {
    auto sum = side.fresh({1});
    detail::batch_norm_squared_deviations(side.dev, side.exactly({std::ssize(values), 1}, values),
                                          mean, sum.mut());
    return side.values(sum.view())[0];
  };
  CHECK(sum_of({4000, 4001, 3999, 4000}) == 2);
  CHECK(sum_of({}) == 0);
}

}  // namespace tests
