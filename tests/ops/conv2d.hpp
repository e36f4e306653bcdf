// Cases of convolutions on any device.
#pragma once

#include <dhp/ops/conv2d.hpp>
#include <dhp/ops/elementwise.hpp>
#include <tests/support/sides.hpp>

namespace tests {

struct ConvCase {
  Shape x;
  std::int64_t out_channels;
  Conv2dGeometry geometry;

  [[nodiscard]] Shape w() const {
    return {out_channels, geometry.kernel, geometry.kernel, x.back()};
  }
  [[nodiscard]] Shape y() const { return conv2d_output_shape(x, out_channels, geometry); }
};

/// Returns y, and for each beta dx and dw, which with beta 0 are NaN before: none of them may be read.
Results conv_results(auto& side, const ConvCase& layer, const std::vector<double>& betas) {
  const auto x = side.elements(layer.x, 1), w = side.elements(layer.w(), 2),
             dy = side.elements(layer.y(), 3);
  auto y = side.fresh(layer.y());
  fill(side.dev, y.mut(), NAN);
  conv2d_forward(side.dev, x, w, layer.geometry, y.mut());
  auto found = side.results(y);
  for (const double beta : betas) {
    auto dx = side.elements(layer.x, 5), dw = side.sums(layer.w(), 4);
    if (beta == 0)
      for (auto* gradient : {&dx, &dw}) fill(side.dev, gradient->mut(), NAN);
    conv2d_backward_data(side.dev, dy, w, layer.geometry, dx.mut(), beta);
    conv2d_backward_filter(side.dev, x, dy, layer.geometry, dw.mut(), beta);
    for (const auto* gradient : {&dx, &dw}) found.push_back(side.values(gradient->view()));
  }
  return found;
}

template <class T, class Dev>
void check_conv(const ConvCase& layer, const std::vector<double>& betas) {
  INFO("x ", to_text(layer.x), " kernel ", layer.geometry.kernel, " stride ", layer.geometry.stride,
       " padding ", layer.geometry.padding);
  const auto [got, right] =
      Sides<T, Dev>()([&](auto& side) { return conv_results(side, layer, betas); });
  for (std::size_t at = 0; at < right.size(); ++at) {
    CAPTURE(at);
    const bool sums = at > 0 && at % 2 == 0;
    CHECK(relative_error(got[at], right[at]) <=
          (sums ? 2 * tolerance<Accumulator<T>> : tolerance<T>));
  }
}

}  // namespace tests
