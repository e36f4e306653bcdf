// conv2d and its gradients: against loops and finite differences in f64; f32 and 16 bits against
// f64.
#include <dhp/cpu/conv2d.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace dhp;
using namespace tests;

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
      {{3, 2, 3, 17}, 35, {3, 1, 1}}, {{1, 11, 4, 2}, 3, {2, 5, 1}}, {{1, 2, 2, 3}, 4, {2, 4, 1}}};
}

Shape weight_shape(const Case& layer) {
  const std::int64_t kernel = layer.geometry.kernel;
  return {layer.out_channels, kernel, kernel, layer.x[3]};
}
Shape output_shape(const Case& layer) {
  return conv2d_output_shape(layer.x, layer.out_channels, layer.geometry);
}

// A tensor of T with the values of `from`, rounded.
template <class T>
Tensor<Cpu> rounded(Cpu& dev, const Tensor<Cpu>& from) {
  Tensor<Cpu> made(dev, dtype_of<T>(), from.shape());
  const auto values = widened(from);
  std::transform(values.begin(), values.end(), made.mut().template data<T>(),
                 [](double value) { return static_cast<T>(value); });
  return made;
}

std::vector<double> convolve_by_loops(const Case& layer, const Tensor<Cpu>& x,
                                      const Tensor<Cpu>& w) {
  const auto in = widened(x);
  const auto weights = widened(w);
  const auto& s = x.shape();
  const auto y = output_shape(layer);
  const auto [kernel, stride, padding] = layer.geometry;
  std::vector<double> out;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t oh = 0; oh < y[1]; ++oh)
      for (std::int64_t ow = 0; ow < y[2]; ++ow)
        for (std::int64_t o = 0; o < y[3]; ++o) {
          double sum = 0;
          for (int kh = 0; kh < kernel; ++kh)
            for (int kw = 0; kw < kernel; ++kw)
              for (std::int64_t c = 0; c < s[3]; ++c) {
                const auto h = oh * stride - padding + kh;
                const auto v = ow * stride - padding + kw;
                if (h < 0 || h >= s[1] || v < 0 || v >= s[2]) continue;
                sum +=
                    in[static_cast<std::size_t>(((n * s[1] + h) * s[2] + v) * s[3] + c)] *
                    weights[static_cast<std::size_t>(((o * kernel + kh) * kernel + kw) * s[3] + c)];
              }
          out.push_back(sum);
        }
  return out;
}

// All three results of one layer.
struct Results {
  Tensor<Cpu> y, dx, dw;
};
Results run(Cpu& dev, const Case& layer, const Tensor<Cpu>& x, const Tensor<Cpu>& w,
            const Tensor<Cpu>& dy) {
  Results out{Tensor<Cpu>(dev, x.dtype(), dy.shape()), Tensor<Cpu>(dev, x.dtype(), x.shape()),
              Tensor<Cpu>(dev, accumulation_type(x.dtype()), w.shape())};
  conv2d_forward(dev, x, w, layer.geometry, out.y.mut());
  conv2d_backward_data(dev, dy, w, layer.geometry, out.dx.mut());
  conv2d_backward_filter(dev, x, dy, layer.geometry, out.dw.mut(), 0);
  return out;
}

}  // namespace

TEST_CASE("conv2d in f64 agrees with loops and with finite differences") {
  Cpu dev({.threads = 2});
  for (const auto& layer : cases()) {
    CAPTURE(to_text(layer.x));
    CAPTURE(layer.geometry.kernel);
    CAPTURE(layer.geometry.stride);
    CAPTURE(layer.geometry.padding);
    auto x = random_tensor<double>(dev, layer.x, 1);
    auto w = random_tensor<double>(dev, weight_shape(layer), 2);
    const auto dy = random_tensor<double>(dev, output_shape(layer), 3);
    const auto got = run(dev, layer, x, w, dy);
    CHECK(distance(widened(got.y), convolve_by_loops(layer, x, w)) < 1e-12);

    Tensor<Cpu> y(dev, DType::f64, dy.shape());
    const auto loss = [&] {
      conv2d_forward(dev, x, w, layer.geometry, y.mut());
      return weighted_sum(y, dy);
    };
    // The loss is linear in x and in w: a large step has no truncation error.
    CHECK(distance(widened(got.dx), numerical_gradient(x, loss, 0.01)) < 1e-9);
    CHECK(distance(widened(got.dw), numerical_gradient(w, loss, 0.01)) < 1e-9);
  }
}

TEST_CASE_TEMPLATE("conv2d in f32 and 16 bits agrees with f64 on the same inputs", T, float, bf16,
                   f16) {
  Cpu dev;
  const double unit = std::is_same_v<T, float> ? 1e-6 : std::is_same_v<T, bf16> ? 0.004 : 0.0005;
  for (const auto& layer : cases()) {
    CAPTURE(to_text(layer.x));
    CAPTURE(layer.geometry.kernel);
    CAPTURE(layer.geometry.stride);
    const auto x = random_tensor<T>(dev, layer.x, 1);
    const auto w = random_tensor<T>(dev, weight_shape(layer), 2);
    const auto dy = random_tensor<T>(dev, output_shape(layer), 3);
    const auto got = run(dev, layer, x, w, dy);
    const auto exact =
        run(dev, layer, rounded<double>(dev, x), rounded<double>(dev, w), rounded<double>(dev, dy));
    const auto largest = [](const Tensor<Cpu>& tensor) {
      double most = 1;
      for (const double value : widened(tensor)) most = std::max(most, std::abs(value));
      return most;
    };
    CHECK(distance(widened(got.y), widened(exact.y), largest(exact.y)) <= unit);
    CHECK(distance(widened(got.dx), widened(exact.dx), largest(exact.dx)) <= unit);
    CHECK(distance(widened(got.dw), widened(exact.dw), largest(exact.dw)) <= 1e-6);
  }
}

TEST_CASE_TEMPLATE("gradients of several tiles and blocks are still right", T, double, float) {
  // More pixels, channels and taps than one tile or one block along k holds.
  Cpu dev({.threads = 2});
  const Case layer{{2, 23, 25, 40}, 66, {3, 2, 1}};
  const auto x = random_tensor<T>(dev, layer.x, 1);
  const auto w = random_tensor<T>(dev, weight_shape(layer), 2);
  const auto dy = random_tensor<T>(dev, output_shape(layer), 3);
  const auto got = run(dev, layer, x, w, dy);
  const double unit = std::is_same_v<T, double> ? 1e-11 : 1e-4;
  CHECK(distance(widened(got.y), convolve_by_loops(layer, x, w)) < unit);
  // y, dx and dw are gradients of one trilinear form: <y, dy> = <x, dx> = <w, dw>.
  const double form = weighted_sum(got.y, dy);
  const double size = std::abs(form) + 1;
  CHECK(std::abs(weighted_sum(got.dx, x) - form) / size < unit);
  CHECK(std::abs(weighted_sum(got.dw, w) - form) / size < unit);
}

TEST_CASE_TEMPLATE("conv2d has the same bits for any number of threads", T, double, float, bf16) {
  const Case layers[] = {{{3, 20, 21, 24}, 40, {3, 1, 1}},
                         {{3, 20, 21, 24}, 40, {3, 2, 1}},
                         {{2, 75, 61, 16}, 8, {1, 1, 0}}};
  for (const auto& layer : layers) {
    std::vector<std::vector<double>> first;
    for (const int threads : {1, 2, 3}) {
      Cpu dev({.threads = threads});
      const auto got = run(dev, layer, random_tensor<T>(dev, layer.x, 1),
                           random_tensor<T>(dev, weight_shape(layer), 2),
                           random_tensor<T>(dev, output_shape(layer), 3));
      const std::vector<std::vector<double>> now = {widened(got.y), widened(got.dx),
                                                    widened(got.dw)};
      if (first.empty()) first = now;
      CHECK(first == now);
    }
  }
}

TEST_CASE_TEMPLATE("dw = beta dw + gradient; beta 0 and the other results never read their output",
                   T, double, float, bf16) {
  using A = Accumulator<T>;
  Cpu dev;
  for (const auto& layer : cases()) {
    const auto x = random_tensor<T>(dev, layer.x, 1);
    const auto w = random_tensor<T>(dev, weight_shape(layer), 2);
    const auto dy = random_tensor<T>(dev, output_shape(layer), 3);
    const auto fresh = run(dev, layer, x, w, dy);
    auto dw = random_tensor<A>(dev, weight_shape(layer), 4);
    auto expected = widened(dw);
    const auto gradient = widened(fresh.dw);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 0.5 * expected[i] + gradient[i];
    conv2d_backward_filter(dev, x, dy, layer.geometry, dw.mut(), 0.5);
    CHECK(distance(widened(dw), expected) < 1e-4);

    const auto spoil = [](Tensor<Cpu>& tensor) {
      visit_floating(tensor.dtype(), [&]<class E>(Tag<E>) {
        std::fill_n(tensor.mut().data<E>(), tensor.count(),
                    static_cast<E>(std::numeric_limits<float>::quiet_NaN()));
      });
    };
    Tensor<Cpu> y = clone<Cpu>(dev, fresh.y);
    Tensor<Cpu> dx = clone<Cpu>(dev, fresh.dx);
    spoil(y);
    spoil(dx);
    spoil(dw);
    conv2d_forward(dev, x, w, layer.geometry, y.mut());
    conv2d_backward_data(dev, dy, w, layer.geometry, dx.mut());
    conv2d_backward_filter(dev, x, dy, layer.geometry, dw.mut(), 0);
    CHECK(widened(y) == widened(fresh.y));
    CHECK(widened(dx) == widened(fresh.dx));
    CHECK(widened(dw) == gradient);
  }
}

TEST_CASE("an empty batch convolves to an empty batch, and its weight gradient is zero") {
  Cpu dev;
  const Case layer{{0, 5, 5, 3}, 4, {3, 1, 1}};
  const auto got = run(dev, layer, Tensor<Cpu>(dev, DType::f32, layer.x),
                       random_tensor<float>(dev, weight_shape(layer), 2),
                       Tensor<Cpu>(dev, DType::f32, output_shape(layer)));
  for (const double value : widened(got.dw)) CHECK(value == 0);
}

TEST_CASE("conv2d refuses what does not fit") {
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
