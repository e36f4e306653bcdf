// Batch normalization: every op against the Cpu in double, for aligned and unaligned channels, few and many rows.
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/reduce.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/batch_norm.hpp>

TEST_CASE_TEMPLATE("batch norm agrees with the Cpu, also in place", T, double, float, bf16, f16) {
  for (const auto& each : {BatchNormCase{{1, 1}},
                           {{2, 5, 5, 24}, 0, true},
                           {{9, 3, 7}},
                           {{5, 264}, 0, true},
                           {{65, 16}, 1, true},
                           {{40, 6}, 0, true}})  // packs of two
    check_batch_norm<T, Gpu>(each);
  for (const auto& shape : {Shape{33, 24}, {70, 131}}) check_batch_norm_in_place<T, Gpu>(shape);
}

TEST_CASE("batch norm agrees with the Cpu for many rows and for none") {
  check_batch_norm<float, Gpu>({.shape = {3000, 8}, .relu = true});
  check_batch_norm<bf16, Gpu>({.shape = {3000, 8}, .relu = true});
  check_batch_norm<float, Gpu>({.shape = {0, 4}});
}

TEST_CASE("batch norm's ReLU maps negatives to 0 and keeps NaN, both without gradient") {
  check_batch_norm_relu<Gpu>();
}
TEST_CASE("squared deviations keep their digits where the mean is large") {
  check_squared_deviations<Gpu>();
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
