// What a product is added to: beta c + bias, also where c holds nothing yet.
#include <dhp/cuda/prefill.hpp>
#include <dhp/tensor/tensor.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

TEST_CASE_TEMPLATE("prefill is beta c + bias; beta 0 never reads c", T, double, float, bf16, f16) {
  Gpu gpu;
  using A = Accumulator<T>;
  const std::int64_t rows = 37, columns = 29;
  const auto bias = random_on<T>(gpu, {columns}, 1);
  for (const double beta : {0.0, 0.5}) {
    auto c = beta == 0 ? Tensor<Gpu>(gpu, dtype_of<A>(), {rows, columns})
                       : random_on<A>(gpu, {rows, columns}, 2);
    const auto before = widened(gpu, c);
    const auto added = widened(gpu, bias);
    cuda::prefill(gpu, beta, bias.view(), c.mut());
    std::vector<double> expected;
    for (std::size_t at = 0; at < before.size(); ++at)
      expected.push_back(added[at % static_cast<std::size_t>(columns)] +
                         (beta == 0 ? 0 : beta * before[at]));
    CHECK(distance(widened(gpu, c), expected) <= (std::is_same_v<A, double> ? 1e-15 : 1e-6));
  }
}
