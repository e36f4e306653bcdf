// Cross-entropy: every op agrees with the Cpu's, from the same rounded logits.
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/cuda/cross_entropy.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/rows.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/cross_entropy.hpp>

TEST_CASE_TEMPLATE("cross entropy agrees with the Cpu for short, long, odd and unaligned rows", T,
                   double, float, bf16, f16) {
  check_cross_entropy<T, Gpu>({7, 2}, 0);
  check_cross_entropy<T, Gpu>({5, 33}, 0.1);
  check_cross_entropy<T, Gpu>({4, 1000}, 0.1);
  check_cross_entropy<T, Gpu>({3, 4098}, 0);
  check_cross_entropy<T, Gpu>({6, 120}, 0.1, {{0, 40}, {40, 80}, {80, 120}});
  check_cross_entropy<T, Gpu>({6, 120}, 0.1, {{0, 40}, {40, 77}, {77, 120}}, 27);
  check_cross_entropy<T, Gpu>({3, 1001}, 0, {{0, 1001}}, 3);
}

TEST_CASE_TEMPLATE("cross entropy: equal, far and NaN logits have the right loss and rank", T,
                   double, float, bf16, f16) {
  check_special_logits<T, Gpu>();
}
TEST_CASE("cross entropy: extreme logits neither overflow nor vanish") {
  check_extreme_logits<Gpu>();
}

TEST_CASE("cross entropy: an invalid label gives NaN") {
  Side<float, Gpu> side;
  const auto found = cross_entropy_results(side, side.elements({3, 10}, 1), {1, 10, -2})[0];
  CHECK(found[0] > 0);
  CHECK(std::isnan(found[1]));
  CHECK(std::isnan(found[2]));
}
