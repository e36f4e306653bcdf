// Pooling on the GPU against the Cpu: windows over the border, ties, NaN; aligned and unaligned.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/pool.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/pool.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

struct Case {
  Shape x;
  PoolGeometry geometry;
};
const Case cases[] = {{{2, 8, 8, 5}, {3, 2, 1}}, {{1, 7, 5, 16}, {3, 2, 1}},
                      {{3, 4, 6, 1}, {2, 2, 0}}, {{1, 5, 5, 24}, {3, 1, 1}},
                      {{2, 1, 1, 3}, {3, 2, 1}}, {{1, 6, 3, 2}, {3, 3, 0}},
                      {{1, 9, 7, 8}, {2, 3, 1}}, {{1, 6, 6, 4}, {1, 2, 0}}};

// Rounds x to small integers, so that many elements are equal.
template <class Dev>
void round_all(Dev& dev, Tensor<Dev>& x) {
  auto values = widened(dev, x.view());
  for (double& value : values) value = std::round(value);
  const auto whole = Tensor<Dev>::from_host(dev, x.shape(), values);
  cast(dev, whole.view(), x.mut());
}

}  // namespace

TEST_CASE_TEMPLATE("max pool and its gradient have the Cpu's bits", T, double, float, bf16, f16) {
  for (const auto& each : cases) {
    CAPTURE(to_text(each.x));
    has_bits_of_cpu<T>([&](auto& side) -> Results {
      const auto shape = pool_output_shape(each.x, each.geometry);
      auto x = side.elements(each.x, 1), y = side.fresh(shape), dx = side.fresh(each.x);
      round_all(side.dev, x);
      Tensor index(side.dev, DType::i32, shape);
      max_pool_forward(side.dev, x, each.geometry, y.mut(), index.mut());
      max_pool_backward(side.dev, side.elements(shape, 2), index, each.geometry, dx.mut());
      const auto where = index.template to_host<std::int32_t>(side.dev);
      return {side.values(y.view()), side.values(dx.view()), {where.begin(), where.end()}};
    });
  }
}

TEST_CASE("max pool: NaN wins, then the first of equal maxima; -inf can win") {
  on_gpu_and_cpu<float>([](auto& side) {
    const auto pooled = [&](const std::vector<float>& values) {
      const auto x = side.tensor({1, 2, 2, 1}, values);
      auto y = side.fresh({1, 1, 1, 1});
      Tensor index(side.dev, DType::i32, {1, 1, 1, 1});
      max_pool_forward(side.dev, x, {2, 2, 0}, y.mut(), index.mut());
      return std::pair{side.values(y.view())[0], index.template to_host<std::int32_t>(side.dev)[0]};
    };
    for (std::size_t at = 0; at < 4; ++at) {
      std::vector<float> values{1, 2, HUGE_VALF, 0};
      values[at] = NAN;
      CHECK(std::isnan(pooled(values).first));
      CHECK(pooled(values).second == static_cast<std::int32_t>(at));
    }
    CHECK(pooled({0, NAN, NAN, 5}).second == 1);
    CHECK(pooled(std::vector<float>(4, -HUGE_VALF)) == std::pair{-HUGE_VAL, 0});
  });
}

TEST_CASE("max pool: an index outside its window is ignored, and writes nothing") {
  Gpu gpu;
  const auto dy = Tensor<Gpu>::from_host(gpu, {1, 1, 1, 1}, std::vector<float>{3.0f});
  for (const std::int32_t bad : {-1, 4, 1 << 30}) {
    const auto index = Tensor<Gpu>::from_host(gpu, {1, 1, 1, 1}, std::vector<std::int32_t>{bad});
    Tensor<Gpu> dx(gpu, DType::f32, {1, 2, 2, 1});
    max_pool_backward(gpu, dy, index, {2, 2, 0}, dx.mut());
    CHECK(widened(gpu, dx) == std::vector<double>(4, 0.0));
  }
}

TEST_CASE_TEMPLATE("the average over images and its gradient agree with the Cpu", T, double, float,
                   bf16, f16) {
  for (const auto& shape :
       {Shape{3, 9, 11, 5}, {2, 7, 7, 16}, {1, 1, 1, 1}, {2, 3, 3, 520}, {5, 2, 40, 64}}) {
    CAPTURE(to_text(shape));
    agrees_with_cpu<T>([&](auto& side) -> Results {
      const Shape small{shape[0], shape[3]};
      auto y = side.fresh(small), dx = side.fresh(shape);
      global_average_pool_forward(side.dev, side.elements(shape, 1), y.mut());
      global_average_pool_backward(side.dev, side.elements(small, 2), dx.mut());
      return side.results(y, dx);
    });
  }
}

TEST_CASE_TEMPLATE("pooling works at unaligned addresses and for no images", T, float, bf16) {
  Sides<T, Gpu, false> sides;
  const auto [got, expected] = sides([](auto& side) -> Results {
    const Shape shape{1, 4, 4, 16}, small = pool_output_shape(shape, {});
    const auto source = side.elements({257}, 1);
    const auto x = source.view().slice(1, 257).as(shape);
    auto y = side.fresh(small), mean = side.fresh({1, 16});
    Tensor index(side.dev, DType::i32, small);
    max_pool_forward(side.dev, x, {}, y.mut(), index.mut());
    global_average_pool_forward(side.dev, x, mean.mut());
    return side.results(y, mean);
  });
  CHECK(got[0] == expected[0]);
  CHECK(relative_error(got[1], expected[1]) <= tolerance<T>);

  Gpu gpu;
  Tensor<Gpu> none(gpu, dtype_of<T>(), {0, 4, 4, 2}), pooled(gpu, dtype_of<T>(), {0, 2, 2, 2});
  Tensor<Gpu> nowhere(gpu, DType::i32, {0, 2, 2, 2}), no_mean(gpu, dtype_of<T>(), {0, 2});
  max_pool_forward(gpu, none, {}, pooled.mut(), nowhere.mut());
  max_pool_backward(gpu, pooled, nowhere, {}, none.mut());
  global_average_pool_forward(gpu, none, no_mean.mut());
  global_average_pool_backward(gpu, no_mean, none.mut());
}
