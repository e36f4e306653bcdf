// Activations on the GPU against the Cpu in double, from the same rounded inputs.
#include <dhp/cpu/activation.hpp>
#include <dhp/cuda/activation.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace dhp;
using namespace tests;

namespace {

constexpr Activation kinds[] = {Activation::relu, Activation::gelu, Activation::tanh};

}  // namespace

TEST_CASE_TEMPLATE("activations and their gradients, at any count and address", T, double, float,
                   bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  for (const auto kind : kinds)
    for (const std::int64_t count : {1, 8, 9, 1003})
      for (const std::int64_t skip : {0, 1}) {
        if (skip >= count) continue;
        CAPTURE(static_cast<int>(kind));
        CAPTURE(count);
        CAPTURE(skip);
        const auto x = random_on<T>(gpu, {count}, 1);
        const auto dy = random_on<T>(gpu, {count}, 2);
        Tensor<Gpu> y(gpu, dtype_of<T>(), {count}), dx(gpu, dtype_of<T>(), {count});
        gpu.fill_zero(y.mut().bytes(), y.size_bytes());
        gpu.fill_zero(dx.mut().bytes(), dx.size_bytes());
        const auto part = [&](auto view) { return view.slice(skip, count); };
        activation_forward(gpu, kind, part(x.view()), part(y.mut()));
        // The gradient from a random "saved", whose outputs need not be those of any input.
        activation_backward(gpu, kind, part(x.view()), part(dy.view()), part(dx.mut()));

        const auto right_x = oracle_of<T>(cpu, {count}, 1);
        const auto right_dy = oracle_of<T>(cpu, {count}, 2);
        auto right_y = Tensor<Cpu>::zeros(cpu, DType::f64, {count});
        auto right_dx = Tensor<Cpu>::zeros(cpu, DType::f64, {count});
        activation_forward(cpu, kind, part(right_x.view()), part(right_y.mut()));
        activation_backward(cpu, kind, part(right_x.view()), part(right_dy.view()),
                            part(right_dx.mut()));
        CHECK(relative_error(widened(gpu, y), widened(right_y)) <= tolerance<T>);
        CHECK(relative_error(widened(gpu, dx), widened(right_dx)) <= tolerance<T>);
      }
}

TEST_CASE_TEMPLATE("activations in place", T, float, bf16) {
  Gpu gpu;
  Cpu cpu;
  for (const auto kind : kinds) {
    auto x = random_on<T>(gpu, {77}, 1);
    auto dy = random_on<T>(gpu, {77}, 2);
    Tensor<Gpu> y(gpu, dtype_of<T>(), {77}), dx(gpu, dtype_of<T>(), {77});
    activation_forward(gpu, kind, x, y.mut());
    activation_backward(gpu, kind, x, dy, dx.mut());
    activation_backward(gpu, kind, x, dy, dy.mut());
    activation_forward(gpu, kind, x, x.mut());
    CHECK(widened(gpu, x) == widened(gpu, y));
    CHECK(widened(gpu, dy) == widened(gpu, dx));
  }
}

TEST_CASE_TEMPLATE("a NaN stays one, and tails keep their digits", T, double, float) {
  Gpu gpu;
  Cpu cpu;
  const std::vector<T> special{std::numeric_limits<T>::quiet_NaN(),
                               std::numeric_limits<T>::infinity(),
                               T(-5),
                               T(-0.0),
                               T(30),
                               T(-100),
                               T(1e-6)};
  const auto count = static_cast<std::int64_t>(special.size());
  const auto x = to_gpu(gpu, Tensor<Cpu>::from_host(cpu, {count}, special));
  const std::vector<double> wide(special.begin(), special.end());
  const auto right_x = Tensor<Cpu>::from_host(cpu, {count}, wide);
  for (const auto kind : kinds) {
    CAPTURE(static_cast<int>(kind));
    Tensor<Gpu> y(gpu, dtype_of<T>(), {count});
    Tensor<Cpu> right(cpu, DType::f64, {count});
    activation_forward(gpu, kind, x, y.mut());
    activation_forward(cpu, kind, right_x, right.mut());
    const auto got = widened(gpu, y), expected = widened(right);
    CHECK(std::isnan(got[0]));
    for (std::size_t at = 1; at < got.size(); ++at)
      CHECK((got[at] == expected[at] ||
             std::abs(got[at] - expected[at]) <= 3 * tolerance<T> * std::abs(expected[at])));
  }
  // The gradient of GELU from -5 on, where it is a difference of small numbers.
  const auto one =
      to_gpu(gpu, Tensor<Cpu>::from_host(cpu, {count}, std::vector<T>(special.size(), T(1))));
  const auto wide_one =
      Tensor<Cpu>::from_host(cpu, {count}, std::vector<double>(special.size(), 1));
  Tensor<Gpu> slope(gpu, dtype_of<T>(), {count});
  Tensor<Cpu> right_slope(cpu, DType::f64, {count});
  activation_backward(gpu, Activation::gelu, x, one, slope.mut());
  activation_backward(cpu, Activation::gelu, right_x, wide_one, right_slope.mut());
  const auto slopes = widened(gpu, slope), right_slopes = widened(right_slope);
  CHECK(std::isnan(slopes[0]));
  for (std::size_t at = 2; at < slopes.size(); ++at)
    CHECK(std::abs(slopes[at] - right_slopes[at]) <= 3 * tolerance<T> * std::abs(right_slopes[at]));
  // The gradient of relu at a NaN is 0, as on the Cpu.
  Tensor<Gpu> dx(gpu, dtype_of<T>(), {count});
  activation_backward(gpu, Activation::relu, x, x, dx.mut());
  CHECK(widened(gpu, dx)[0] == 0);
  CHECK(widened(gpu, dx)[2] == 0);
}

TEST_CASE("no elements are no kernel") {
  Gpu gpu;
  Tensor<Gpu> none(gpu, DType::f32, {0, 3});
  for (const auto kind : kinds) {
    activation_forward(gpu, kind, none, none.mut());
    activation_backward(gpu, kind, none, none, none.mut());
  }
}
