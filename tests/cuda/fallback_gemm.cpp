// The kernels of gemm and convolutions.
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/fallback_conv2d.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/conv2d.hpp>
#include <tests/ops/gemm.hpp>

TEST_CASE_TEMPLATE("fallback gemm agrees with the Cpu for transposes, scales, bias and odd sizes",
                   T, double, float, bf16, f16) {
  using enum GemmCase::Bias;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true})
      check_gemm<T, Gpu>({67, 65, 33, {.transpose_a = ta, .transpose_b = tb}});
    check_gemm<T, Gpu>({67, 65, 33, {.transpose_a = ta, .beta = 0.5, .padded = true}, true, wide});
  }
  check_gemm<T, Gpu>({1, 130, 7, {.alpha = 0.5}, false, wide});
  check_gemm<T, Gpu>({64, 64, 16, {.alpha = 2, .beta = -0.5}, true, wide});
  check_gemm<T, Gpu>({64, 64, 16, {.beta = 1}, true});
  check_gemm<T, Gpu>({5, 3, 0, {.beta = 0.5}, false, wide});
}

TEST_CASE_TEMPLATE("fallback convolutions and their gradients agree with the Cpu", T, double, float,
                   bf16, f16) {
  for (const auto& layer : {ConvCase{{2, 7, 5, 3}, 4, {.kernel = 3, .stride = 1, .padding = 1}},
                            {{1, 9, 8, 5}, 6, {.kernel = 3, .stride = 2, .padding = 1}},
                            {{2, 6, 6, 3}, 8, {.kernel = 5, .stride = 3, .padding = 2}},
                            {{1, 40, 60, 2}, 3, {.kernel = 1, .stride = 1, .padding = 0}}})
    check_conv<T, Gpu>(layer, {0, 0.5});
}
