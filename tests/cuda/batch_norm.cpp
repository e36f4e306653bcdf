// Batch normalization: every op against the Cpu in double, for aligned and unaligned channels, few and many rows.
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/reduce.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

// x, dy and the tensors of their size start `skip` elements into their memory.
template <class T>
void check_all(const Shape& shape, std::int64_t skip, bool relu) {
  using A = Accumulator<T>;
  INFO("shape ", to_text(shape), " skip ", skip);
  const auto [got, expected] = with_oracle<T>([&](auto& side) -> Results {
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
    column_sums(dev, x, sum.mut(), 0);
    detail::batch_norm_squared_deviations(dev, x, mean, product.mut());
    keep(sum, product);
    for (const bool gated : {false, true}) {
      detail::batch_norm_backward_sums(dev, dy, x, vectors, gated, sum.mut(), product.mut());
      keep(sum, product);
    }
    auto to = side.fresh(shape);
    detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), product.mut(), some_y,
                                     to.mut());
    keep(sum, product, to);
    detail::batch_norm_apply(dev, x, vectors, {}, relu, to.mut());
    keep(to);
    detail::batch_norm_apply(dev, x, vectors, residual, relu, to.mut());
    keep(to);
    // The count is that of about three ranks with as many rows. Both devices get the same sums.
    const auto count = 3.0 * static_cast<double>(shape.rows()) + 1;
    const auto some = side.sums(columns, 7), others = side.sums(columns, 8);
    for (const bool gated : {false, true}) {
      detail::batch_norm_backward_apply(dev, dy, x, vectors, gated, some, others, count, to.mut());
      keep(to);
    }
    return found;
  });
  const double size = std::sqrt(static_cast<double>(shape.rows())) + 1;  // sums may cancel
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

}  // namespace

TEST_CASE_TEMPLATE("batch norm agrees with the Cpu", T, double, float, bf16, f16) {
  check_all<T>({1, 1}, 0, false);
  check_all<T>({2, 5, 5, 24}, 0, true);
  check_all<T>({9, 3, 7}, 0, false);
  check_all<T>({5, 264}, 0, true);
  check_all<T>({65, 16}, 1, true);
  check_all<T>({40, 6}, 0, true);  // packs of two
}

TEST_CASE("batch norm agrees with the Cpu for many rows and for none") {
  check_all<float>({3000, 8}, 0, true);
  check_all<bf16>({3000, 8}, 0, true);
  check_all<float>({0, 4}, 0, false);
}

// Tests both devices.
TEST_CASE_TEMPLATE("batch norm results may overwrite their inputs", T, double, float, bf16, f16) {
  for (const auto& shape : {Shape{33, 24}, {70, 131}})
    on_gpu_and_cpu<T>([&](auto& side) {
      auto& dev = side.dev;
      const auto x = side.elements(shape, 1), residual = side.elements(shape, 2),
                 dy = side.elements(shape, 3);
      const auto vector = [&](std::uint32_t use) { return side.sums({shape.back()}, use); };
      const auto mean = vector(4), inv_std = vector(5), gamma = vector(6), beta = vector(7);
      const detail::BatchNormVectors<std::remove_reference_t<decltype(dev)>> vectors{mean, inv_std,
                                                                                     gamma, beta};
      const auto rows = static_cast<double>(shape.rows());
      auto y = side.fresh(shape), out = side.fresh(shape);
      detail::batch_norm_apply(dev, x, vectors, residual, true, y.mut());
      auto over = clone(dev, residual.view());
      detail::batch_norm_apply(dev, x, vectors, over.view(), true, over.mut());
      CHECK(side.values(over.view()) == side.values(y.view()));
      auto sum = vector(8), product = vector(9), sum_again = vector(8), product_again = vector(9);
      detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), product.mut(), y,
                                       out.mut());
      over = clone(dev, dy.view());
      detail::batch_norm_backward_sums(dev, over.view(), x, vectors, true, sum_again.mut(),
                                       product_again.mut(), y, over.mut());
      CHECK(side.values(over.view()) == side.values(out.view()));
      CHECK(side.values(sum_again.view()) == side.values(sum.view()));
      CHECK(side.values(product_again.view()) == side.values(product.view()));
      for (const bool gated : {false, true}) {
        detail::batch_norm_backward_apply(dev, dy, x, vectors, gated, sum, product, rows,
                                          out.mut());
        over = clone(dev, dy.view());
        detail::batch_norm_backward_apply(dev, over.view(), x, vectors, gated, sum, product, rows,
                                          over.mut());
        CHECK(side.values(over.view()) == side.values(out.view()));
      }
    });
}

TEST_CASE("batch norm's ReLU maps negatives to 0 and keeps NaN, both without gradient") {
  on_gpu_and_cpu<float>([](auto& side) {
    auto& dev = side.dev;
    const auto row = [&](const Shape& shape, const std::vector<float>& values) {
      return side.tensor(shape, values);
    };
    const auto x = row({1, 4}, {-1, -0.0f, 2, NAN}), nothing = row({1, 4}, {0, 0, 0, 0}),
               dy = row({1, 4}, {1, 1, 1, 1});
    const auto zeros = row({4}, {0, 0, 0, 0}), ones = row({4}, {1, 1, 1, 1});
    using View = ConstView<std::remove_reference_t<decltype(dev)>>;
    const detail::BatchNormVectors<std::remove_reference_t<decltype(dev)>> vectors{zeros, ones,
                                                                                   ones, zeros};
    auto y = side.fresh({1, 4}), sum = side.fresh({4}), product = side.fresh({4});
    for (const bool residual : {false, true}) {
      detail::batch_norm_apply(dev, x, vectors, residual ? nothing.view() : View(), true, y.mut());
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
  });
}

TEST_CASE("squared deviations keep their digits where the mean is large; of no rows they are 0") {
  on_gpu_and_cpu<float>([](auto& side) {
    const auto mean = side.tensor({1}, std::vector<float>{4000});
    auto sum = side.fresh({1});
    const auto sum_of = [&](const std::vector<float>& values) {
      detail::batch_norm_squared_deviations(
          side.dev, side.tensor({static_cast<std::int64_t>(values.size()), 1}, values), mean,
          sum.mut());
      return side.values(sum.view())[0];
    };
    CHECK(sum_of({4000, 4001, 3999, 4000}) == 2);
    CHECK(sum_of({}) == 0);
  });
}

TEST_CASE("squared deviations follow from 1 / sqrt(variance + epsilon), and are at least 0") {
  constexpr double epsilon = 1e-3, rows = 12;
  for (const std::int64_t skip : {0, 1}) {
    Gpu gpu;
    const std::vector<float> variances{0, 0.25, 1, 9, 64, 1e-4f, 2};
    std::vector<float> inv_std;
    for (const double variance : variances)
      inv_std.push_back(static_cast<float>(1 / std::sqrt(variance + epsilon)));
    inv_std[0] = std::nextafter(inv_std[0], INFINITY);  // like a negative variance
    const auto x = Tensor<Gpu>::from_host(gpu, {7}, inv_std);
    Tensor<Gpu> y(gpu, DType::f32, {7});
    detail::cuda::map(gpu, 7 - skip, detail::cuda::SquaredDeviations{epsilon, rows},
                      y.mut().slice(skip, 7).template data<float>(),
                      x.view().slice(skip, 7).template data<float>());
    const auto found = widened(gpu, y);
    for (auto at = static_cast<std::size_t>(skip); at < found.size(); ++at) {
      CHECK(found[at] >= 0);
      CHECK(std::abs(found[at] / rows - variances[at]) <= 3e-7 * (variances[at] + epsilon));
    }
  }
}

TEST_CASE_TEMPLATE("batch_norm: statistics from sums agree with the Cpu", T, double, float) {
  for (const std::int64_t channels : {1, 37, 2048}) {
    const auto statistics = [&](auto& side) -> Results {
      auto sums = side.sums({2, channels}, 1);
      fill(side.dev, sums.mut().slice(1, 2), 30.0);  // far more than 20 mean^2
      const Shape columns{channels};
      auto mean = side.fresh_sums(columns), inv_std = side.fresh_sums(columns),
           deviations = side.fresh_sums(columns);
      detail::batch_norm_from_sums(side.dev, sums, 20, 1e-3, mean.mut(), inv_std.mut(),
                                   deviations.mut());
      return side.results(mean, inv_std, deviations);
    };
    agrees_with_cpu<T>(statistics, tolerance<T> * 2);
  }
}
