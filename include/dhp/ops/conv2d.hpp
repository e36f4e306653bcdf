// conv2d: convolution of images [N, H, W, C] with a square kernel, and its gradients. Weights are
// [O, K, K, C], so that each row matches the memory order of the pixels.
#pragma once

#include <dhp/ops/checks.hpp>
#include <dhp/tensor/tensor.hpp>

#include <optional>

namespace dhp {

struct Conv2dGeometry {
  int kernel = 1, stride = 1;
  int padding = 0;  ///< zeros on each side
};

/// [N, H, W, C] -> [N, OH, OW, out_channels], OH = (H + 2 padding - kernel) / stride + 1.
[[nodiscard]] inline Shape conv2d_output_shape(const Shape& x, std::int64_t out_channels,
                                               Conv2dGeometry geometry) {
  check(x.rank() == 4, "conv2d: images are [N, H, W, C], got ", x);
  check(geometry.kernel >= 1 && geometry.stride >= 1 && geometry.padding >= 0,
        "conv2d: kernel and stride are at least 1 and padding at least 0, got ", geometry.kernel,
        ", ", geometry.stride, ", ", geometry.padding);
  const auto [height, width] = detail::output_extents("conv2d: a kernel", x, geometry);
  return {x[0], height, width, out_channels};
}

namespace detail {
/// x, w and y, or their gradients; weights: their type.
void check_conv2d(const char* op, const auto& x, const auto& w, const auto& y,
                  Conv2dGeometry geometry, DType weights) {
  const std::int64_t kernel = geometry.kernel;
  const auto &in = x.shape(), &of = w.shape();
  check(of.rank() == 4 && in.rank() == 4 && of == Shape{of[0], kernel, kernel, in[3]}, "conv2d_",
        op, ": images ", in, " and kernel ", kernel, " need weights [O, K, K, C], got ", of);
  const auto expected = conv2d_output_shape(in, of[0], geometry);
  check(y.shape() == expected, "conv2d_", op, ": ", in, " and weights ", of, " give ", expected,
        ", got ", y.shape());
  check(x.dtype() == y.dtype() && w.dtype() == weights, "conv2d_", op, ": images are ", x.dtype(),
        " and ", y.dtype(), ", weights ", w.dtype(), "; images need one type, and weights ",
        weights);
}
}  // namespace detail

/// y = x * w. x [N, H, W, C], w [O, K, K, C], y [N, OH, OW, O] of one type; sums in the
/// accumulation type. Throws Error on wrong shapes or types, as the gradients do.
template <Device Dev>
void conv2d_forward(Dev& dev, In<Dev> x, In<Dev> w, Conv2dGeometry geometry, Out<Dev> y) {
  detail::check_conv2d("forward", x, w, y, geometry, x.dtype());
  conv2d_forward_on(dev, x, w, geometry, y);
}

namespace detail {
/// Fallbacks for devices without fused kernels.
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_forward_with_sums_on(Dev&, const auto&...) {
  return {};
}
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_backward_data_to_norm_on(Dev&, const auto&...) {
  return {};
}

/// conv2d_forward, and the sums of y and of y^2 over its rows, [2, O] in the accumulation type, from
/// the same pass. nullopt if the device has no such function: then nothing is written.
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_forward_with_sums(Dev& dev, In<Dev> x, In<Dev> w,
                                                                  Conv2dGeometry geometry,
                                                                  Out<Dev> y) {
  check_conv2d("forward_with_sums", x, w, y, geometry, x.dtype());
  return conv2d_forward_with_sums_on(dev, x, w, geometry, y);
}
}  // namespace detail

/// dx [N, H, W, C] = beta dx + the input gradient, from dy [N, OH, OW, O] and w [O, K, K, C] of one type; beta 0 reads
/// nothing.
template <Device Dev>
void conv2d_backward_data(Dev& dev, In<Dev> dy, In<Dev> w, Conv2dGeometry geometry, Out<Dev> dx,
                          double beta = 0) {
  detail::check_conv2d("backward_data", dx, w, dy, geometry, dx.dtype());
  conv2d_backward_data_on(dev, dy, w, geometry, dx, beta);
}

namespace detail {
/// The gradient of a convolution whose x a batch norm with a ReLU made, through that ReLU: dx = the input gradient +
/// onto (empty: 0) where x > 0, else 0. Returns what the norm's own gradient needs, [2, C] in the accumulation type:
/// the sums over rows of dx and of dx * xhat, xhat the normalised input of the norm. nullopt if the device has no such
/// function: then dx has to be written again.
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_backward_data_to_norm(
    Dev& dev, In<Dev> dy, In<Dev> w, Conv2dGeometry geometry, In<Dev> onto,
    const NormTrace<Dev>& norm, Out<Dev> dx) {
  check_conv2d("backward_data_to_norm", dx, w, dy, geometry, dx.dtype());
  check_like("conv2d_backward_data_to_norm: the norm's input", norm.x, dx);
  if (!onto.empty()) check_like("conv2d_backward_data_to_norm: what it adds to,", onto, dx);
  return conv2d_backward_data_to_norm_on(dev, dy, w, geometry, onto, norm, dx);
}
}  // namespace detail

/// dw = beta dw + the weight gradient, [O, K, K, C] in x's accumulation type; beta 0 reads nothing.
template <Device Dev>
void conv2d_backward_filter(Dev& dev, In<Dev> x, In<Dev> dy, Conv2dGeometry geometry, Out<Dev> dw,
                            double beta) {
  detail::check_conv2d("backward_filter", x, dw, dy, geometry, accumulation_type(x.dtype()));
  conv2d_backward_filter_on(dev, x, dy, geometry, dw, beta);
}

}  // namespace dhp
