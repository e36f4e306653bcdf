#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/activation.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/activation.hpp>

TEST_CASE_TEMPLATE("activations agree with the Cpu at any address, also in place", T, double, float,
                   bf16, f16) {
  for (const std::int64_t count : {8, 9, 1003})
    for (const std::int64_t skip : {0, 1}) check_activations<T, Gpu>(count, skip);
  check_activations<T, Gpu>(1);
}

TEST_CASE_TEMPLATE("activations keep NaN, and the digits of small and large inputs", T, double,
                   float, bf16, f16) {
  check_special_activations<T, Gpu>();
}

TEST_CASE("activations launch no kernel for no elements") {
  Gpu gpu;
  Tensor<Gpu> none(gpu, DType::f32, {0, 3});
  for (const auto kind : activations()) {
    activation_forward(gpu, kind, none, none.mut());
    activation_backward(gpu, kind, none, none, none.mut());
  }
}
