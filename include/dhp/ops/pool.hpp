// Max pooling over windows and average pooling over whole images [N, H, W, C].
#pragma once

#include <dhp/ops/checks.hpp>

namespace dhp {

struct PoolGeometry {
  int kernel = 3, stride = 2;
  int padding = 1;  ///< at most kernel / 2; padding is never the maximum
};

/// Returns the shape [N, OH, OW, C] for images [N, H, W, C]. OH = (H + 2 padding - kernel) / stride + 1.
[[nodiscard]] inline Shape pool_output_shape(const Shape& x, PoolGeometry geometry) {
  check(x.rank() == 4 && x[1] > 0 && x[2] > 0, "pool: images are [N, H, W, C] with pixels, got ",
        x);
  check(geometry.kernel >= 1 && geometry.stride >= 1 && geometry.padding >= 0 &&
            2 * geometry.padding <= geometry.kernel,
        "pool: kernel and stride are at least 1 and padding 0 to half the kernel, got ",
        geometry.kernel, ", ", geometry.stride, ", ", geometry.padding);
  const auto [height, width] = detail::output_extents("pool: a window", x, geometry);
  return {x[0], height, width, x[3]};
}

/// y [N, OH, OW, C] = the maximum of each window of x [N, H, W, C], or NaN if there is one. index, i32 [N, OH, OW, C],
/// is h * W + w of the first pixel with this value. y has x's type. All pooling ops throw Error on wrong shapes or
/// types.
template <Device Dev>
void max_pool_forward(Dev& dev, InView<Dev> x, PoolGeometry geometry, OutView<Dev> y,
                      OutView<Dev> index) {
  const auto expected = pool_output_shape(x.shape(), geometry);
  check(y.shape() == expected && index.shape() == expected, "max_pool_forward: ", x.shape(),
        " gives ", expected, ", got y ", y.shape(), " and index ", index.shape());
  check(y.dtype() == x.dtype() && index.dtype() == DType::i32, "max_pool_forward: x is ", x.dtype(),
        ", so y is the same and index i32, got ", y.dtype(), " and ", index.dtype());
  check(x.shape()[1] * x.shape()[2] <= 0x7fffffff, "max_pool_forward: images of ", x.shape(),
        " have more pixels than an i32 counts");
  max_pool_forward_on(dev, x, geometry, y, index);
}

/// Overwrites dx [N, H, W, C]: adds each element of dy [N, OH, OW, C] to the pixel of its index, in window order, in
/// the accumulation type. index, i32 [N, OH, OW, C], and geometry are as in max_pool_forward.
template <Device Dev>
void max_pool_backward(Dev& dev, InView<Dev> dy, InView<Dev> index, PoolGeometry geometry,
                       OutView<Dev> dx) {
  const auto expected = pool_output_shape(dx.shape(), geometry);
  check(dy.shape() == expected && index.shape() == expected, "max_pool_backward: dx ", dx.shape(),
        " belongs to dy ", expected, ", got dy ", dy.shape(), " and index ", index.shape());
  check(dx.dtype() == dy.dtype() && index.dtype() == DType::i32, "max_pool_backward: dy is ",
        dy.dtype(), ", so dx is the same and index i32, got ", dx.dtype(), " and ", index.dtype());
  max_pool_backward_on(dev, dy, index, geometry, dx);
}

/// y [N, C] = the mean over H and W of x [N, H, W, C], summed in the accumulation type.
template <Device Dev>
void global_average_pool_forward(Dev& dev, InView<Dev> x, OutView<Dev> y) {
  check(x.shape().rank() == 4 && y.shape() == Shape{x.shape()[0], x.shape()[3]},
        "global_average_pool_forward: x [N, H, W, C] gives y [N, C], got ", x.shape(), " and ",
        y.shape());
  check(x.shape()[1] * x.shape()[2] > 0, "global_average_pool_forward: images of ", x.shape(),
        " have no pixels");
  check(x.dtype() == y.dtype(), "global_average_pool_forward: x is ", x.dtype(), " and y is ",
        y.dtype(), "; both need one type");
  global_average_pool_forward_on(dev, x, y);
}

/// dx [N, H, W, C] = dy [N, C] / (H W).
template <Device Dev>
void global_average_pool_backward(Dev& dev, InView<Dev> dy, OutView<Dev> dx) {
  check(dx.shape().rank() == 4 && dy.shape() == Shape{dx.shape()[0], dx.shape()[3]},
        "global_average_pool_backward: dx [N, H, W, C] belongs to dy [N, C], got ", dx.shape(),
        " and ", dy.shape());
  check(dx.shape()[1] * dx.shape()[2] > 0, "global_average_pool_backward: images of ", dx.shape(),
        " have no pixels");
  check(dx.dtype() == dy.dtype(), "global_average_pool_backward: dy is ", dy.dtype(), " and dx is ",
        dx.dtype(), "; both need one type");
  global_average_pool_backward_on(dev, dy, dx);
}

}  // namespace dhp
