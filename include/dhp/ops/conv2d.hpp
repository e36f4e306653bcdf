// conv2d: convolution of images [N, H, W, C] with a square kernel, and its gradients. Weights are [O, K, K, C], so that
// the weights of an output channel and the pixels under the kernel have the same order in memory.
#pragma once

#include <dhp/ops/checks.hpp>
#include <dhp/tensor/tensor.hpp>

#include <optional>

namespace dhp {

struct Conv2dGeometry {
  int kernel = 1, stride = 1;
  int padding = 0;  ///< number of zeros on each side
};

/// Returns the shape [N, OH, OW, out_channels] for images [N, H, W, C]. OH = (H + 2 padding - kernel) / stride + 1.
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
/// Checks x, w and y, or their gradients. weights: the type that w must have.
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
/// Return whether a library of the device has computed the convolution.
[[nodiscard]] bool conv2d_forward_library_on(Device auto&, const auto&...) { return false; }
[[nodiscard]] bool conv2d_backward_data_library_on(Device auto&, const auto&...) { return false; }
[[nodiscard]] bool conv2d_backward_filter_library_on(Device auto&, const auto&...) { return false; }

/// Fallbacks for devices without fused kernels.
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_forward_with_sums_on(Dev&, const auto&...) {
  return {};
}
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_backward_data_to_norm_on(Dev&, const auto&...) {
  return {};
}

/// Like conv2d_forward of x [N, H, W, C] and w [O, K, K, C], but also returns the sums of y [N, OH, OW, O] and of y^2
/// over rows, [2, O] in the accumulation type, from the same pass. Returns nullopt and writes nothing if the device has
/// no such kernel.
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_forward_with_sums(Dev& dev, InView<Dev> x,
                                                                  InView<Dev> w,
                                                                  Conv2dGeometry geometry,
                                                                  OutView<Dev> y) {
  check_conv2d("forward_with_sums", x, w, y, geometry, x.dtype());
  return conv2d_forward_with_sums_on(dev, x, w, geometry, y);
}
/// Computes the input gradient of a convolution whose input x [N, H, W, C] is the output of a batch norm with ReLU, and
/// passes it through this ReLU: dx [N, H, W, C] = (x > 0 ? input gradient + onto : 0), from dy [N, OH, OW, O], w [O, K,
/// K, C] and onto [N, H, W, C]. An empty `onto` counts as 0. Returns the sums [2, C] that the norm's gradient needs, in
/// the accumulation type: the sums over rows of dx and of dx * xhat, where xhat is the norm's normalized input. Returns
/// nullopt if the device has no such kernel; dx is then undefined.
template <Device Dev>
[[nodiscard]] std::optional<Tensor<Dev>> conv2d_backward_data_to_norm(
    Dev& dev, InView<Dev> dy, InView<Dev> w, Conv2dGeometry geometry, InView<Dev> onto,
    const NormTrace<Dev>& norm, OutView<Dev> dx) {
  check_conv2d("backward_data_to_norm", dx, w, dy, geometry, dx.dtype());
  check_like("conv2d_backward_data_to_norm: the norm's input", norm.x, dx);
  if (!onto.empty()) check_like("conv2d_backward_data_to_norm: what it adds to,", onto, dx);
  return conv2d_backward_data_to_norm_on(dev, dy, w, geometry, onto, norm, dx);
}
}  // namespace detail

/// y = x * w. x [N, H, W, C], w [O, K, K, C] and y [N, OH, OW, O] have one type; sums are in the accumulation type.
/// This op and its gradients throw Error on wrong shapes or types.
template <Device Dev>
void conv2d_forward(Dev& dev, InView<Dev> x, InView<Dev> w, Conv2dGeometry geometry,
                    OutView<Dev> y) {
  detail::check_conv2d("forward", x, w, y, geometry, x.dtype());
  if (!conv2d_forward_library_on(dev, x, w, geometry, y)) conv2d_forward_on(dev, x, w, geometry, y);
}

/// dx [N, H, W, C] = beta dx + the input gradient, from dy [N, OH, OW, O] and w [O, K, K, C] of one type. With beta 0,
/// dx is not read.
template <Device Dev>
void conv2d_backward_data(Dev& dev, InView<Dev> dy, InView<Dev> w, Conv2dGeometry geometry,
                          OutView<Dev> dx, double beta = 0) {
  detail::check_conv2d("backward_data", dx, w, dy, geometry, dx.dtype());
  if (!conv2d_backward_data_library_on(dev, dy, w, geometry, dx, beta))
    conv2d_backward_data_on(dev, dy, w, geometry, dx, beta);
}

/// dw [O, K, K, C] = beta dw + the weight gradient, from x [N, H, W, C] and dy [N, OH, OW, O], in their accumulation
/// type. With beta 0, dw is not read.
template <Device Dev>
void conv2d_backward_filter(Dev& dev, InView<Dev> x, InView<Dev> dy, Conv2dGeometry geometry,
                            OutView<Dev> dw, double beta) {
  detail::check_conv2d("backward_filter", x, dw, dy, geometry, accumulation_type(x.dtype()));
  if (!conv2d_backward_filter_library_on(dev, x, dy, geometry, dw, beta))
    conv2d_backward_filter_on(dev, x, dy, geometry, dw, beta);
}

}  // namespace dhp
