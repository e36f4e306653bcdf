// conv2d and its gradients against loops in double.
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <tests/ops/conv2d.hpp>

namespace {

std::vector<ConvCase> cases() {
  return {
      {{2, 5, 7, 3}, 4, {1, 1, 0}},   {{1, 6, 5, 5}, 3, {1, 2, 0}},  {{2, 5, 6, 3}, 5, {3, 1, 1}},
      {{1, 7, 6, 3}, 2, {3, 2, 1}},   {{2, 9, 8, 3}, 3, {7, 2, 3}},  {{1, 4, 4, 2}, 3, {3, 3, 0}},
      {{1, 1, 1, 3}, 2, {3, 1, 1}},   {{1, 5, 9, 1}, 1, {2, 2, 1}},  {{1, 3, 8, 2}, 2, {1, 1, 1}},
      {{3, 2, 3, 17}, 35, {3, 1, 1}}, {{1, 11, 4, 2}, 3, {2, 5, 1}}, {{1, 2, 2, 3}, 4, {2, 4, 1}},
      {{2, 9, 7, 3}, 32, {5, 2, 2}}};
}

/// Computes the results by loops: y, dx and dw are the gradients of the sum of dy (x * w) with respect to dy, x and w.
Results by_loops(const ConvCase& layer, double beta) {
  Side<double, Cpu> side;
  const auto x = widened(side.elements(layer.x, 1)), w = widened(side.elements(layer.w(), 2)),
             dy = widened(side.elements(layer.y(), 3));
  Results found{std::vector<double>(dy.size()), widened(side.elements(layer.x, 5)),
                widened(side.elements(layer.w(), 4))};
  for (const std::size_t gradient : {1, 2})
    for (auto& value : found[gradient]) value *= beta;
  const auto& s = layer.x;
  const auto shape = layer.y();
  const auto [kernel, stride, padding] = layer.geometry;
  std::size_t to = 0;
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t oh = 0; oh < shape[1]; ++oh)
      for (std::int64_t ow = 0; ow < shape[2]; ++ow)
        for (std::int64_t o = 0; o < shape[3]; ++o, ++to)
          for (int kh = 0; kh < kernel; ++kh)
            for (int kw = 0; kw < kernel; ++kw) {
              const auto h = oh * stride - padding + kh;
              const auto v = ow * stride - padding + kw;
              if (h < 0 || h >= s[1] || v < 0 || v >= s[2]) continue;
              auto from = static_cast<std::size_t>(((n * s[1] + h) * s[2] + v) * s[3]);
              auto by = static_cast<std::size_t>(((o * kernel + kh) * kernel + kw) * s[3]);
              for (std::int64_t c = 0; c < s[3]; ++c, ++from, ++by) {
                found[0][to] += x[from] * w[by];
                found[1][from] += dy[to] * w[by];
                found[2][by] += dy[to] * x[from];
              }
            }
  return found;
}

}  // namespace

TEST_CASE_TEMPLATE("conv2d agrees with loops, also over several tiles", T, double, float, bf16,
                   f16) {
  auto layers = cases();
  // Pixels, channels and taps fill more than one tile and more than one block along k; weights fill several tiles.
  layers.push_back({{2, 23, 25, 40}, 66, {3, 2, 1}});
  // Channels fill panels of A (6 or 14 rows), so that dw is computed as its transpose.
  layers.push_back({{2, 9, 9, 12}, 16, {3, 1, 1}});
  layers.push_back({{2, 9, 9, 14}, 32, {3, 1, 1}});
  // The image is read in place across pixels: rows outside, borders, panels that cross rows of taps, several blocks.
  layers.push_back({{2, 9, 30, 22}, 48, {3, 1, 1}});
  layers.push_back({{1, 7, 57, 22}, 32, {3, 2, 1}});
  layers.push_back({{1, 3, 28, 40}, 16, {2, 1, 0}});
  layers.push_back({{4, 7, 6, 260}, 8, {3, 1, 1}});  // whole panels see only padding
  layers.push_back(
      {{2, 7, 7, 32}, 8, {3, 1, 1}});  // both halves of a panel begin and end at borders
  for (const auto& layer : layers)
    for (const double beta : {0.0, 0.5}) {
      check_conv<T, Cpu>(layer, {beta});
      if constexpr (std::is_same_v<T, double>) {
        Side<double, Cpu> side;
        check_near(conv_results(side, layer, {beta}), by_loops(layer, beta), 1e-13);
      }
    }
}

TEST_CASE_TEMPLATE("conv2d has the same bits for any number of threads", T, double, float, bf16) {
  const ConvCase layers[] = {{{3, 20, 21, 24}, 40, {3, 1, 1}},
                             {{3, 20, 21, 24}, 40, {3, 2, 1}},
                             {{2, 75, 61, 16}, 8, {1, 1, 0}}};
  for (const auto& layer : layers)
    has_bits_on_threads<T>([&](auto& side) { return conv_results(side, layer, {0}); });
}

TEST_CASE("conv2d has the same bits with and without bf16 pairs") {
  Side<bf16, Cpu> pairs{Cpu({.bf16_products = Bf16Products::pairs})},
      floats{Cpu({.bf16_products = Bf16Products::floats})};
  for (const auto& layer : cases())
    CHECK(conv_results(pairs, layer, {0}) == conv_results(floats, layer, {0}));
}

TEST_CASE("conv2d maps an empty batch to an empty one, with a zero weight gradient") {
  Side<float, Cpu> side;
  const ConvCase layer{{0, 5, 5, 3}, 4, {3, 1, 1}};
  CHECK(conv_results(side, layer, {0}) == Results{{}, {}, std::vector<double>(4 * 9 * 3)});
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
  CHECK_THROWS_AS((void)conv2d_output_shape({1, 2, 2, 3}, 4, {5, 1, 0}), Error);
  CHECK_THROWS_AS((void)conv2d_output_shape({1, 2, 2, 3}, 4, {1, 0, 0}), Error);
  CHECK_THROWS_AS((void)conv2d_output_shape({2, 2, 3}, 4, {1, 1, 0}), Error);
}
