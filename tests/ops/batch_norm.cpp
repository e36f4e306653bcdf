// Batch normalization on the Cpu, with or without a residual and a ReLU, against loops in double.
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <tests/ops/batch_norm.hpp>

namespace {

/// Computes the results by plain loops, in the order of batch_norm_results().
Results by_loops(const BatchNormCase& each) {
  Side<double, Cpu> side;
  const BatchNormOperands of(side, each);
  const auto x = widened(of.x), dy = widened(of.dy), residual = widened(of.residual),
             y = widened(of.y), mean = widened(of.mean), inv_std = widened(of.inv_std),
             gamma = widened(of.gamma), beta = widened(of.beta), sum = widened(of.sum),
             product = widened(of.product);
  Results found(13);
  for (std::size_t at = 0; at < 8; ++at) found[at].resize(mean.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto c = i % mean.size();
    const double normal = (x[i] - mean[c]) * inv_std[c], before = normal * gamma[c] + beta[c];
    found[0][c] += x[i];
    found[1][c] += std::pow(x[i] - mean[c], 2);
    const double arrives[] = {dy[i], before > 0 ? dy[i] : 0, y[i] > 0 ? dy[i] : 0};
    for (const std::size_t way : {0, 1, 2}) {
      found[2 + 2 * way][c] += arrives[way];
      found[3 + 2 * way][c] += arrives[way] * normal;
    }
    found[8].push_back(arrives[2]);
    for (const std::size_t adds : {0, 1}) {
      const double value = before + (adds == 1 ? residual[i] : 0);
      found[9 + adds].push_back(each.relu ? std::max(0.0, value) : value);
    }
    for (const std::size_t gated : {0, 1})
      found[11 + gated].push_back(
          gamma[c] * inv_std[c] *
          (arrives[gated] - sum[c] / each.count() - normal * product[c] / each.count()));
  }
  return found;
}

// Numbers of rows near the tiles of 64 and 128; numbers of columns near the vector width and the blocks of 128.
const std::vector<Shape> shapes{{0, 4}, {2, 1}, {2, 3, 3, 5}, {129, 8}, {300, 33}, {5, 131}};

}  // namespace

TEST_CASE_TEMPLATE("batch norm: all operations match plain loops, rounded to each type", T, double,
                   float, bf16, f16) {
  for (const auto& shape : shapes)
    for (const bool relu : {false, true}) {
      const BatchNormCase each{.shape = shape, .relu = relu};
      check_batch_norm<T, Cpu>(each);
      if constexpr (std::is_same_v<T, double>) {
        Side<double, Cpu> side;
        check_near(batch_norm_results(side, each), by_loops(each), 1e-12);
      }
    }
}

TEST_CASE_TEMPLATE("batch norm: threads and in-place use change no bit", T, double, float, bf16,
                   f16) {
  has_bits_on_threads<T>([](auto& side) {
    return batch_norm_results(side, {.shape = {1000, 17}, .relu = true});
  });
  for (const auto& shape : {Shape{33, 24}, {70, 131}}) check_batch_norm_in_place<T, Cpu>(shape);
}

TEST_CASE("batch norm: ReLU maps negatives to 0 and keeps NaN, both without gradient") {
  check_batch_norm_relu<Cpu>();
}
TEST_CASE("batch norm: squared deviations keep their digits where the mean is large") {
  check_squared_deviations<Cpu>();
}

TEST_CASE("batch norm: means over no rows are refused") {
  Side<float, Cpu> side;
  const BatchNormOperands of(side, {.shape = {3, 4}});
  auto to = side.fresh({3, 4}), column = side.fresh({4});
  CHECK(message_of([&] {
          detail::batch_norm_backward_apply(side.dev, of.dy.view().as(to.shape()),
                                            of.x.view().as(to.shape()), of.vectors(), true, of.sum,
                                            of.product, 0, to.mut());
        }) == "batch_norm: a count of 0 rows has no mean; give 1 row or more");
  CHECK(message_of([&] {
          detail::batch_norm_from_sums(side.dev, side.sums({2, 4}, 1), 0, 1e-4, column.mut(),
                                       column.mut(), column.mut());
        }) == "batch_norm: sums over 0 rows have no mean; give 1 row or more");
}

TEST_CASE_TEMPLATE("batch_norm_from_sums: statistics follow from known sums", A, double, float) {
  Cpu dev;
  // The columns are 1, 3, 5, 7 and 2, 2, 2, 2. In the third column, the sum of squares was rounded down.
  const auto sums = Tensor<Cpu>::from_host(dev, {2, 3}, std::vector<A>{16, 8, 8, 84, 16, 15.999f});
  Tensor<Cpu> mean(dev, dtype_of<A>(), {3}), inv_std(dev, dtype_of<A>(), {3}),
      deviations(dev, dtype_of<A>(), {3});
  detail::batch_norm_from_sums(dev, sums, 4, 1e-4, mean.mut(), inv_std.mut(), deviations.mut());
  CHECK(widened(mean) == std::vector<double>{4, 2, 2});
  CHECK(widened(deviations) == std::vector<double>{20, 0, 0});
  CHECK(distance(widened(inv_std), {1 / std::sqrt(5 + 1e-4), 100, 100}) < 1e-4);
}
