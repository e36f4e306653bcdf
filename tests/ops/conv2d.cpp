// conv2d and its gradients against loops in double.
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <tests/support/tensors.hpp>

namespace {

struct Case {
  Shape x;
  std::int64_t out_channels;
  Conv2dGeometry geometry;
};

std::vector<Case> cases() {
  return {
      {{2, 5, 7, 3}, 4, {1, 1, 0}},   {{1, 6, 5, 5}, 3, {1, 2, 0}},  {{2, 5, 6, 3}, 5, {3, 1, 1}},
      {{1, 7, 6, 3}, 2, {3, 2, 1}},   {{2, 9, 8, 3}, 3, {7, 2, 3}},  {{1, 4, 4, 2}, 3, {3, 3, 0}},
      {{1, 1, 1, 3}, 2, {3, 1, 1}},   {{1, 5, 9, 1}, 1, {2, 2, 1}},  {{1, 3, 8, 2}, 2, {1, 1, 1}},
      {{3, 2, 3, 17}, 35, {3, 1, 1}}, {{1, 11, 4, 2}, 3, {2, 5, 1}}, {{1, 2, 2, 3}, 4, {2, 4, 1}},
      {{2, 9, 7, 3}, 32, {5, 2, 2}}};
}

Shape weight_shape(const Case& layer) {
  const std::int64_t kernel = layer.geometry.kernel;
  return {layer.out_channels, kernel, kernel, layer.x[3]};
}
Shape output_shape(const Case& layer) {
  return conv2d_output_shape(layer.x, layer.out_channels, layer.geometry);
}

// All three results of one layer, filled with NaN before: none of them may be read.
struct Results {
  Tensor<Cpu> y, dx, dw;
};
Results run(Cpu& dev, const Case& layer, const Tensor<Cpu>& x, const Tensor<Cpu>& w,
            const Tensor<Cpu>& dy) {
  const auto blank = [&](DType type, const Shape& shape) {
    Tensor<Cpu> result(dev, type, shape);
    fill(dev, result.mut(), NAN);
    return result;
  };
  Results out{blank(x.dtype(), dy.shape()), blank(x.dtype(), x.shape()),
              blank(accumulation_type(x.dtype()), w.shape())};
  conv2d_forward(dev, x, w, layer.geometry, out.y.mut());
  conv2d_backward_data(dev, dy, w, layer.geometry, out.dx.mut());
  conv2d_backward_filter(dev, x, dy, layer.geometry, out.dw.mut(), 0);
  return out;
}

// Results by loops in double: y, dx and dw are the gradients of the sum of dy (x * w) with respect to dy, x and w.
struct Expected {
  std::vector<double> y, dx, dw;
};
Expected by_loops(const Case& layer, const Tensor<Cpu>& x, const Tensor<Cpu>& w,
                  const Tensor<Cpu>& dy) {
  const auto in = widened(x), weights = widened(w), above = widened(dy);
  const auto& s = x.shape();
  const auto& y = dy.shape();
  const auto [kernel, stride, padding] = layer.geometry;
  Expected out{std::vector<double>(above.size()), std::vector<double>(in.size()),
               std::vector<double>(weights.size())};
  std::size_t to = 0;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t oh = 0; oh < y[1]; ++oh)
      for (std::int64_t ow = 0; ow < y[2]; ++ow)
        for (std::int64_t o = 0; o < y[3]; ++o, ++to)
          for (int kh = 0; kh < kernel; ++kh)
            for (int kw = 0; kw < kernel; ++kw) {
              const auto h = oh * stride - padding + kh;
              const auto v = ow * stride - padding + kw;
              if (h < 0 || h >= s[1] || v < 0 || v >= s[2]) continue;
              auto from = static_cast<std::size_t>(((n * s[1] + h) * s[2] + v) * s[3]);
              auto by = static_cast<std::size_t>(((o * kernel + kh) * kernel + kw) * s[3]);
              for (std::int64_t c = 0; c < s[3]; ++c, ++from, ++by) {
                out.y[to] += in[from] * weights[by];
                out.dx[from] += above[to] * weights[by];
                out.dw[by] += above[to] * in[from];
              }
            }
  return out;
}

// Returns the largest difference, in units of the largest value.
double apart(const Tensor<Cpu>& got, const std::vector<double>& right) {
  double largest = 1;
  for (const double value : right) largest = std::max(largest, std::abs(value));
  return distance(widened(got), right, largest);
}

}  // namespace

TEST_CASE_TEMPLATE("conv2d agrees with loops, also over several tiles", T, double, float, bf16,
                   f16) {
  Cpu dev({.threads = 2});
  const double wide = std::is_same_v<T, double> ? 1e-13 : 2e-6;
  const double unit = std::is_same_v<T, bf16> ? 0.004 : std::is_same_v<T, f16> ? 0.0005 : wide;
  auto layers = cases();
  // More pixels, channels and taps than one tile or one block along k holds, and several tiles of weights.
  layers.push_back({{2, 23, 25, 40}, 66, {3, 2, 1}});
  // Channels fill panels of A (6 or 14 rows), so that dw is computed as its transpose.
  layers.push_back({{2, 9, 9, 12}, 16, {3, 1, 1}});
  layers.push_back({{2, 9, 9, 14}, 32, {3, 1, 1}});
  layers.push_back({{1, 28, 28, 32}, 48, {3, 1, 1}});
  layers.push_back({{4, 7, 6, 260}, 8, {3, 1, 1}});  // whole panels see only padding
  layers.push_back(
      {{2, 7, 7, 32}, 8, {3, 1, 1}});  // both halves of a panel begin and end at borders
  for (const auto& layer : layers) {
    INFO("layer.x ", to_text(layer.x), " layer.geometry.kernel ", layer.geometry.kernel);
    CAPTURE(layer.geometry.stride);
    CAPTURE(layer.geometry.padding);
    const auto x = random_tensor<T>(dev, layer.x, 1);
    const auto w = random_tensor<T>(dev, weight_shape(layer), 2);
    const auto dy = random_tensor<T>(dev, output_shape(layer), 3);
    const auto got = run(dev, layer, x, w, dy);
    const auto right = by_loops(layer, x, w, dy);
    CHECK(apart(got.y, right.y) <= unit);
    CHECK(apart(got.dx, right.dx) <= unit);
    CHECK(apart(got.dw, right.dw) <= wide);
  }
}

TEST_CASE_TEMPLATE("conv2d has the same bits for any number of threads", T, double, float, bf16) {
  const Case layers[] = {{{3, 20, 21, 24}, 40, {3, 1, 1}},
                         {{3, 20, 21, 24}, 40, {3, 2, 1}},
                         {{2, 75, 61, 16}, 8, {1, 1, 0}}};
  for (const auto& layer : layers)
    CHECK(same_on_threads([&](Cpu& dev) {
      const auto got = run(dev, layer, random_tensor<T>(dev, layer.x, 1),
                           random_tensor<T>(dev, weight_shape(layer), 2),
                           random_tensor<T>(dev, output_shape(layer), 3));
      return std::vector{widened(got.y), widened(got.dx), widened(got.dw)};
    }));
}

TEST_CASE("conv2d has the same bits with and without bf16 pairs") {
  Cpu pairs, floats({.bf16_pairs = false});
  for (const auto& layer : cases()) {
    const auto x = random_tensor<bf16>(pairs, layer.x, 1);
    const auto w = random_tensor<bf16>(pairs, weight_shape(layer), 2);
    const auto dy = random_tensor<bf16>(pairs, output_shape(layer), 3);
    const auto got = run(pairs, layer, x, w, dy), right = run(floats, layer, x, w, dy);
    CHECK(widened(got.y) == widened(right.y));
    CHECK(widened(got.dx) == widened(right.dx));
    CHECK(widened(got.dw) == widened(right.dw));
  }
}

TEST_CASE_TEMPLATE("conv2d adds gradients to beta times the old values", T, double, float, bf16) {
  Cpu dev({.threads = 2});
  for (const auto& layer : cases())
    for (const double beta : {1.0, 0.5}) {
      const auto x = random_tensor<T>(dev, layer.x, 1);
      const auto w = random_tensor<T>(dev, weight_shape(layer), 2);
      const auto dy = random_tensor<T>(dev, output_shape(layer), 3);
      const auto gradients = by_loops(layer, x, w, dy);
      const auto added = [&](const Tensor<Cpu>& to, const std::vector<double>& gradient) {
        auto values = widened(to);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = beta * values[i] + gradient[i];
        return values;
      };
      auto dx = random_tensor<T>(dev, layer.x, 4);
      auto dw = random_tensor<Accumulator<T>>(dev, weight_shape(layer), 4);
      const auto right_dx = added(dx, gradients.dx), right_dw = added(dw, gradients.dw);
      conv2d_backward_data(dev, dy, w, layer.geometry, dx.mut(), beta);
      conv2d_backward_filter(dev, x, dy, layer.geometry, dw.mut(), beta);
      CHECK(apart(dx, right_dx) < (is_16_bit<T> ? 0.004 : 1e-5));
      CHECK(apart(dw, right_dw) < 1e-5);
    }
}

TEST_CASE("conv2d maps an empty batch to an empty one, with a zero weight gradient") {
  Cpu dev;
  const Case layer{{0, 5, 5, 3}, 4, {3, 1, 1}};
  const auto got = run(dev, layer, Tensor<Cpu>(dev, DType::f32, layer.x),
                       random_tensor<float>(dev, weight_shape(layer), 2),
                       Tensor<Cpu>(dev, DType::f32, output_shape(layer)));
  for (const double value : widened(got.dw)) CHECK(value == 0);
}

TEST_CASE("conv2d refuses operands that do not fit") {
  Cpu dev;
  const Tensor<Cpu> x(dev, DType::f32, {1, 4, 4, 3});
  const Tensor<Cpu> w(dev, DType::f32, {2, 3, 3, 3});
  Tensor<Cpu> y(dev, DType::f32, {1, 4, 4, 2});
  CHECK(
      message_of([&] {
        conv2d_forward(dev, x, w, {3, 1, 0}, y.mut());
      }) ==
      "conv2d_forward: [1, 4, 4, 3] and weights [2, 3, 3, 3] give [1, 2, 2, 2], got [1, 4, 4, 2]");
  CHECK_THROWS_AS(conv2d_forward(dev, x, w, {5, 1, 1}, y.mut()), Error);
  CHECK_THROWS_AS(conv2d_forward(dev, x, y, {3, 1, 1}, y.mut()), Error);
  CHECK_THROWS_AS((void)conv2d_output_shape({1, 2, 2, 3}, 4, {5, 1, 0}), Error);
  CHECK_THROWS_AS((void)conv2d_output_shape({1, 2, 2, 3}, 4, {1, 0, 0}), Error);
  CHECK_THROWS_AS((void)conv2d_output_shape({2, 2, 3}, 4, {1, 1, 0}), Error);
  Tensor<Cpu> narrow(dev, DType::bf16, {1, 4, 4, 2});
  CHECK_THROWS_AS(conv2d_forward(dev, x, w, {3, 1, 1}, narrow.mut()), Error);
  Tensor<Cpu> dw(dev, DType::f64, {2, 3, 3, 3});
  CHECK_THROWS_AS(conv2d_backward_filter(dev, x, y, {3, 1, 1}, dw.mut(), 0), Error);
}
