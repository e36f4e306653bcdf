// Pooling on the GPU against the Cpu: windows over the border, ties, NaN; channels with packs and
// without.
#include <dhp/cpu/pool.hpp>
#include <dhp/cuda/pool.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace dhp;
using namespace tests;

namespace {

struct Case {
  Shape x;
  PoolGeometry geometry;
};
const Case cases[] = {{{2, 8, 8, 5}, {3, 2, 1}}, {{1, 7, 5, 16}, {3, 2, 1}},
                      {{3, 4, 6, 1}, {2, 2, 0}}, {{1, 5, 5, 24}, {3, 1, 1}},
                      {{2, 1, 1, 3}, {3, 2, 1}}, {{1, 6, 3, 2}, {3, 3, 0}},
                      {{1, 9, 7, 8}, {2, 3, 1}}, {{1, 6, 6, 4}, {1, 2, 0}}};

// Small integers: many are equal.
template <class T>
Tensor<Cpu> ties(Cpu& cpu, const Shape& shape) {
  auto x = random_tensor<T>(cpu, shape, 1);
  T* const values = x.mut().template data<T>();
  for (std::int64_t at = 0; at < x.count(); ++at)
    values[at] = static_cast<T>(std::round(static_cast<Accumulator<T>>(values[at])));
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("max pool and its gradient have the Cpu's bits", T, double, float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  for (const auto& each : cases) {
    CAPTURE(to_text(each.x));
    const auto shape = pool_output_shape(each.x, each.geometry);
    const auto x = ties<T>(cpu, each.x);
    const auto dy = random_tensor<T>(cpu, shape, 2);
    Tensor<Gpu> y(gpu, dtype_of<T>(), shape), index(gpu, DType::i32, shape);
    Tensor<Gpu> dx(gpu, dtype_of<T>(), each.x);
    max_pool_forward(gpu, to_gpu(gpu, x), each.geometry, y.mut(), index.mut());
    max_pool_backward(gpu, to_gpu(gpu, dy), index, each.geometry, dx.mut());

    Tensor<Cpu> right(cpu, dtype_of<T>(), shape), where(cpu, DType::i32, shape);
    Tensor<Cpu> right_dx(cpu, dtype_of<T>(), each.x);
    max_pool_forward(cpu, x, each.geometry, right.mut(), where.mut());
    max_pool_backward(cpu, dy, where, each.geometry, right_dx.mut());
    CHECK(widened(gpu, y) == widened(right));
    CHECK(index.to_host<std::int32_t>(gpu) == where.to_host<std::int32_t>(cpu));
    CHECK(widened(gpu, dx) == widened(right_dx));
  }
}

TEST_CASE("a NaN wins its windows, the first of two; -inf can win") {
  Gpu gpu;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto pooled = [&](const std::vector<float>& values) {
    const auto x = Tensor<Gpu>::from_host(gpu, {1, 2, 2, 1}, values);
    Tensor<Gpu> y(gpu, DType::f32, {1, 1, 1, 1}), index(gpu, DType::i32, {1, 1, 1, 1});
    max_pool_forward(gpu, x, {2, 2, 0}, y.mut(), index.mut());
    return std::pair{y.to_host<float>(gpu)[0], index.to_host<std::int32_t>(gpu)[0]};
  };
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<float> values{1, 2, HUGE_VALF, 0};
    values[at] = nan;
    CHECK(std::isnan(pooled(values).first));
    CHECK(pooled(values).second == static_cast<std::int32_t>(at));
  }
  CHECK(pooled({0, nan, nan, 5}).second == 1);
  CHECK(pooled(std::vector<float>(4, -HUGE_VALF)) == std::pair{-HUGE_VALF, 0});
}

TEST_CASE("a winner that no window has is left out, and nothing is written beyond") {
  Gpu gpu;
  const auto dy = Tensor<Gpu>::from_host(gpu, {1, 1, 1, 1}, std::vector<float>{3.0f});
  for (const std::int32_t bad : {-1, 4, 1 << 30}) {
    const auto index = Tensor<Gpu>::from_host(gpu, {1, 1, 1, 1}, std::vector<std::int32_t>{bad});
    Tensor<Gpu> dx(gpu, DType::f32, {1, 2, 2, 1});
    max_pool_backward(gpu, dy, index, {2, 2, 0}, dx.mut());
    CHECK(widened(gpu, dx) == std::vector<double>(4, 0.0));
  }
}

TEST_CASE_TEMPLATE("the average over images and its gradient", T, double, float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  for (const auto& shape :
       {Shape{3, 9, 11, 5}, {2, 7, 7, 16}, {1, 1, 1, 1}, {2, 3, 3, 520}, {5, 2, 40, 64}}) {
    CAPTURE(to_text(shape));
    const Shape small{shape[0], shape[3]};
    Tensor<Gpu> y(gpu, dtype_of<T>(), small), dx(gpu, dtype_of<T>(), shape);
    global_average_pool_forward(gpu, random_on<T>(gpu, shape, 1), y.mut());
    Tensor<Cpu> right(cpu, DType::f64, small), right_dx(cpu, dtype_of<T>(), shape);
    global_average_pool_forward(cpu, oracle_of<T>(cpu, shape, 1), right.mut());
    CHECK(relative_error(widened(gpu, y), widened(right)) <= tolerance<T>);
    global_average_pool_backward(gpu, random_on<T>(gpu, small, 2), dx.mut());
    global_average_pool_backward(cpu, random_tensor<T>(cpu, small, 2), right_dx.mut());
    CHECK(widened(gpu, dx) == widened(right_dx));
  }
}

TEST_CASE_TEMPLATE("images at an address that allows no packs, and none", T, float, bf16) {
  Gpu gpu;
  Cpu cpu;
  const Shape shape{1, 4, 4, 16};
  const auto source = random_tensor<T>(cpu, Shape{257}, 1);
  const auto on_gpu = to_gpu(gpu, source);
  const auto x = on_gpu.view().slice(1, 257).as(shape);
  const auto right_x = source.view().slice(1, 257).as(shape);
  const auto small = pool_output_shape(shape, {});
  Tensor<Gpu> y(gpu, dtype_of<T>(), small), index(gpu, DType::i32, small);
  Tensor<Cpu> right(cpu, dtype_of<T>(), small), where(cpu, DType::i32, small);
  max_pool_forward(gpu, x, {}, y.mut(), index.mut());
  max_pool_forward(cpu, right_x, {}, right.mut(), where.mut());
  CHECK(widened(gpu, y) == widened(right));
  Tensor<Gpu> mean(gpu, dtype_of<T>(), {1, 16});
  Tensor<Cpu> right_mean(cpu, dtype_of<T>(), {1, 16});
  global_average_pool_forward(gpu, x, mean.mut());
  global_average_pool_forward(cpu, right_x, right_mean.mut());
  CHECK(relative_error(widened(gpu, mean), widened(right_mean)) <= tolerance<T>);

  Tensor<Gpu> none(gpu, dtype_of<T>(), {0, 4, 4, 2}), pooled(gpu, dtype_of<T>(), {0, 2, 2, 2});
  Tensor<Gpu> nowhere(gpu, DType::i32, {0, 2, 2, 2}), no_mean(gpu, dtype_of<T>(), {0, 2});
  max_pool_forward(gpu, none, {}, pooled.mut(), nowhere.mut());
  max_pool_backward(gpu, pooled, nowhere, {}, none.mut());
  global_average_pool_forward(gpu, none, no_mean.mut());
  global_average_pool_backward(gpu, no_mean, none.mut());
}
