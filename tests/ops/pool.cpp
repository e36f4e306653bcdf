// Pooling against loops: ties, NaN, windows over the border.
#include <dhp/cpu/pool.hpp>
#include <tests/support/tensors.hpp>

namespace {

struct Case {
  Shape x;
  PoolGeometry geometry;
};
std::vector<Case> cases() {
  return {{{2, 8, 8, 5}, {3, 2, 1}}, {{1, 7, 5, 3}, {3, 2, 1}}, {{3, 4, 6, 1}, {2, 2, 0}},
          {{1, 5, 5, 4}, {3, 1, 1}}, {{2, 1, 1, 3}, {3, 2, 1}}, {{1, 6, 3, 2}, {3, 3, 0}}};
}

struct MaxPooled {
  Tensor<Cpu> y, index, dx;
};
MaxPooled run(Cpu& dev, const Case& layer, const Tensor<Cpu>& x, const Tensor<Cpu>& dy) {
  const auto shape = pool_output_shape(layer.x, layer.geometry);
  MaxPooled out{Tensor<Cpu>(dev, x.dtype(), shape), Tensor<Cpu>(dev, DType::i32, shape),
                Tensor<Cpu>(dev, x.dtype(), layer.x)};
  max_pool_forward(dev, x, layer.geometry, out.y.mut(), out.index.mut());
  if (dy) max_pool_backward(dev, dy, out.index, layer.geometry, out.dx.mut());
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("max_pool takes the first maximum of each window, and its gradient goes there",
                   T, double, float, bf16, f16) {
  Cpu dev({.threads = 2});
  for (const auto& layer : cases()) {
    const auto x = random_tensor<T>(dev, layer.x, 1);
    const auto dy = random_tensor<T>(dev, pool_output_shape(layer.x, layer.geometry), 2);
    const MaxPooled got = run(dev, layer, x, dy);
    const auto values = widened(x), gradients = widened(dy);
    std::vector<double> dx(values.size());
    const auto y = widened(got.y);
    const auto where = got.index.to_host<std::int32_t>(dev);
    const auto& in = layer.x;
    const auto out = got.y.shape();
    std::size_t at = 0;
    for (std::int64_t n = 0; n < out[0]; ++n)
      for (std::int64_t oh = 0; oh < out[1]; ++oh)
        for (std::int64_t ow = 0; ow < out[2]; ++ow)
          for (std::int64_t c = 0; c < out[3]; ++c, ++at) {
            double best = -std::numeric_limits<double>::infinity();
            std::int64_t pixel = -1;
            for (int kh = 0; kh < layer.geometry.kernel; ++kh)
              for (int kw = 0; kw < layer.geometry.kernel; ++kw) {
                const auto h = oh * layer.geometry.stride - layer.geometry.padding + kh;
                const auto w = ow * layer.geometry.stride - layer.geometry.padding + kw;
                if (h < 0 || h >= in[1] || w < 0 || w >= in[2]) continue;
                const double value =
                    values[static_cast<std::size_t>(((n * in[1] + h) * in[2] + w) * in[3] + c)];
                if (value > best) {
                  best = value;
                  pixel = h * in[2] + w;
                }
              }
            CHECK(y[at] == best);
            CHECK(where[at] == pixel);
            dx[static_cast<std::size_t>((n * in[1] * in[2] + pixel) * in[3] + c)] += gradients[at];
          }
    CHECK(distance(widened(got.dx), dx, 10) < (is_16_bit<T> ? 4e-3 : 1e-6));
  }
}

TEST_CASE_TEMPLATE("max_pool rounds overlapping gradients once", T, float, bf16, f16) {
  Cpu dev;
  // One pixel is the maximum of all four windows that contain it.
  Tensor<Cpu> x = Tensor<Cpu>::zeros(dev, dtype_of<T>(), {1, 3, 3, 1});
  x.mut().data<T>()[4] = T(1.0f);
  Tensor<Cpu> dy(dev, dtype_of<T>(), {1, 2, 2, 1});
  const float parts[] = {1.0f, 0x1p-9f, 0x1p-9f, 0x1p-9f};
  for (int i = 0; i < 4; ++i) dy.mut().data<T>()[i] = T(parts[i]);
  const MaxPooled got = run(dev, {{1, 3, 3, 1}, {2, 1, 0}}, x, dy);
  CHECK(static_cast<float>(got.dx.view().data<T>()[4]) ==
        static_cast<float>(T(1.0f + 3 * 0x1p-9f)));
}

TEST_CASE_TEMPLATE("global_average_pool of f32 and 16 bits rounds once", T, float, bf16, f16) {
  Cpu dev;
  const auto x = random_tensor<T>(dev, {3, 9, 11, 5}, 1);
  Tensor<Cpu> y(dev, dtype_of<T>(), {3, 5});
  global_average_pool_forward(dev, x, y.mut());
  const auto values = widened(x);
  std::vector<double> means(15);
  for (std::size_t i = 0; i < values.size(); ++i) means[i / (99 * 5) * 5 + i % 5] += values[i] / 99;
  const double unit = std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, bf16> ? 0.002 : 0.0003;
  CHECK(distance(widened(y), means) < unit);
}

TEST_CASE_TEMPLATE("global_average_pool stays precise over many pixels", T, double, float, bf16,
                   f16) {
  Cpu dev;
  const Shape shape{2, 512, 512, 3};
  const auto value = static_cast<T>(1000.1);
  const auto x = Tensor<Cpu>::from_host(
      dev, shape, std::vector<T>(static_cast<std::size_t>(shape.count()), value));
  Tensor<Cpu> y(dev, dtype_of<T>(), {2, 3});
  global_average_pool_forward(dev, x, y.mut());
  for (const double got : widened(y))
    CHECK(got == Approx(static_cast<double>(value)).epsilon(4e-6));
}

TEST_CASE("pooling has the same bits for any number of threads") {
  const Case layer{{5, 15, 14, 9}, {3, 2, 1}};
  const auto out = pool_output_shape(layer.x, layer.geometry);
  CHECK(same_on_threads([&](Cpu& dev) {
    return widened(
        run(dev, layer, random_tensor<float>(dev, layer.x, 1), random_tensor<float>(dev, out, 2))
            .dx);
  }));
}

TEST_CASE("pooling refuses operands that do not fit") {
  Cpu dev;
  Tensor<Cpu> x = Tensor<Cpu>::zeros(dev, DType::f32, {1, 4, 4, 2});
  Tensor<Cpu> y(dev, DType::f32, {1, 2, 2, 2});
  Tensor<Cpu> index(dev, DType::i32, {1, 2, 2, 2});
  CHECK(message_of([&] {
          max_pool_forward(dev, x, {2, 1, 0}, y.mut(), index.mut());
        }) ==
        "max_pool_forward: [1, 4, 4, 2] gives [1, 3, 3, 2], got y [1, 2, 2, 2] and index "
        "[1, 2, 2, 2]");
  CHECK_THROWS_AS((void)pool_output_shape({1, 4, 4, 2}, {2, 2, 2}), Error);  // padding only
  CHECK_THROWS_AS((void)pool_output_shape({1, 0, 4, 2}, {1, 1, 0}), Error);
  std::fill_n(index.mut().data<std::int32_t>(), 8, 16);
  CHECK_THROWS_AS(max_pool_backward(dev, y, index, {2, 2, 0}, x.mut()),
                  Error);  // outside the image
  CHECK(message_of([&] {
          max_pool_backward(dev, y, index, {2, 1, 0}, x.mut());
        }) ==
        "max_pool_backward: dx [1, 4, 4, 2] belongs to dy [1, 3, 3, 2], got dy [1, 2, 2, 2] and "
        "index [1, 2, 2, 2]");
  Tensor<Cpu> none(dev, DType::f32, {1, 0, 4, 2}), mean(dev, DType::f32, {1, 2});
  const Contains no_pixels("images of [1, 0, 4, 2] have no pixels");
  CHECK_THROWS_WITH_AS(global_average_pool_forward(dev, none, mean.mut()), no_pixels, Error);
  CHECK_THROWS_WITH_AS(global_average_pool_backward(dev, mean, none.mut()), no_pixels, Error);
}
