// Tree sums have the bits of the Cpu's.
#include <dhp/cpu/tree_sum.hpp>
#include <dhp/cuda/tree_sum.hpp>
#include <tests/cuda/gpu.hpp>

TEST_CASE_TEMPLATE("tree sums have the Cpu's bits, in place and added to y of any type", T, double,
                   float) {
  constexpr std::int64_t columns = 3001;
  for (const int leaves : {1, 3, 8, 64})
    for (const auto type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const double beta : {0.0, 1.0}) {
        INFO(leaves, " leaves onto ", name_of(type), ", beta ", beta);
        has_bits_of_cpu<T>([&](auto& side) -> Results {
          using Dev = std::remove_reference_t<decltype(side.dev)>;
          auto parts = side.elements({leaves, columns}, 1);
          auto y = random_tensor(side.dev, type, {columns - 2}, 2);
          if (beta == 0) y = Tensor<Dev>(side.dev, type, y.shape());  // beta 0: not read
          dhp::detail::tree_sum(side.dev, parts.mut(),
                                dhp::detail::TreeSum(leaves, {0, leaves}).adds(), y.mut(), beta);
          return side.results(parts, y);
        });
      }
  has_bits_of_cpu<T>([&](auto& side) -> Results {
    auto parts = side.elements({5, columns}, 1);
    dhp::detail::tree_sum(side.dev, parts.mut(), {{3, 4}, {0, 3}});
    return side.results(parts);
  });
}
