// dhp's convolution kernel: matrix products that read the images directly (implicit im2col). It runs convolutions that
// cuDNN does not support, is the reference in tests, and runs on the tests' emulated GPU.
#pragma once

#include <dhp/cuda/fallback_gemm.hpp>
#include <dhp/cuda/map.hpp>
#include <dhp/ops/conv2d.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>

namespace dhp::detail::cuda {

/// The extents of the convolution, for the forward product and both gradients.
struct ConvolutionShape {
  std::int64_t height, width, channels;  ///< extents of x
  std::int64_t out_height, out_width, out_channels;
  std::int64_t kernel, stride, padding;
};

template <class Dev>
[[nodiscard]] ConvolutionShape convolution_shape(ConstView<Dev> x, ConstView<Dev> y,
                                                 Conv2dGeometry geometry) {
  const auto& in = x.shape();
  const auto& out = y.shape();
  return {in[1],  in[2],           in[3],           out[1],          out[2],
          out[3], geometry.kernel, geometry.stride, geometry.padding};
}

/// Sees x as a matrix [output pixels, taps * C]: the receptive field of each output pixel.
template <class T>
struct Patches {
  ConvolutionShape shape;
  const T* x;
  constexpr Accumulator<T> operator()(std::int64_t pixel, std::int64_t at) const {
    const auto& s = shape;
    const auto tap = at / s.channels;
    const auto h = pixel / s.out_width % s.out_height * s.stride - s.padding + tap / s.kernel;
    const auto w = pixel % s.out_width * s.stride - s.padding + tap % s.kernel;
    if (h < 0 || h >= s.height || w < 0 || w >= s.width) return 0;
    const auto n = pixel / (s.out_width * s.out_height);
    return static_cast<Accumulator<T>>(
        x[((n * s.height + h) * s.width + w) * s.channels + at % s.channels]);
  }
};

/// Sees dy as a matrix [input pixels, taps * O]: the outputs that each input pixel affects.
template <class T>
struct Receivers {
  ConvolutionShape shape;
  const T* dy;
  constexpr Accumulator<T> operator()(std::int64_t pixel, std::int64_t at) const {
    const auto& s = shape;
    const auto tap = at / s.out_channels;
    const auto h = pixel / s.width % s.height + s.padding - tap / s.kernel;
    const auto w = pixel % s.width + s.padding - tap % s.kernel;
    if (h < 0 || w < 0 || h % s.stride != 0 || w % s.stride != 0) return 0;
    if (h / s.stride >= s.out_height || w / s.stride >= s.out_width) return 0;
    const auto n = pixel / (s.width * s.height);
    const auto row = (n * s.out_height + h / s.stride) * s.out_width + w / s.stride;
    return static_cast<Accumulator<T>>(dy[row * s.out_channels + at % s.out_channels]);
  }
};

/// Sees the weights [O, taps, C] as a matrix [taps * O, C].
template <class T>
struct WeightsByTap {
  ConvolutionShape shape;
  const T* w;
  constexpr Accumulator<T> operator()(std::int64_t at, std::int64_t channel) const {
    const auto tap = at / shape.out_channels;
    const auto out = at % shape.out_channels;
    return static_cast<Accumulator<T>>(
        w[(out * shape.kernel * shape.kernel + tap) * shape.channels + channel]);
  }
};

/// Stores partial sums as [parts, rows, columns].
template <class A>
struct StorePart {
  A* parts;
  std::int64_t rows, columns;
  constexpr void operator()(std::int64_t part, std::int64_t row, std::int64_t column, A sum) const {
    parts[(part * rows + row) * columns + column] = sum;
  }
};

/// Computes dw = beta dw + the parts, in order.
template <class A>
struct AddFilterParts {
  std::int64_t count, parts;
  const A* from;
  A beta;
  A* to;
  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < count; at += grid_threads(block)) {
      A sum = beta == 0 ? A(0) : beta * to[at];
      for (std::int64_t part = 0; part < parts; ++part) sum += from[part * count + at];
      to[at] = sum;
    }
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void conv2d_forward_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w, Conv2dGeometry geometry,
                       View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto shape = cuda::convolution_shape<Dev>(x, y, geometry);
    const auto depth = shape.kernel * shape.kernel * shape.channels;
    cuda::tile_product<A>(dev, y.rows(), shape.out_channels, depth,
                          cuda::Patches<T>{shape, x.data()},
                          cuda::MatrixElement<T>{w.data(), depth, true},
                          cuda::StoreProduct<A, T, T>{1, 0, y.data(), shape.out_channels, nullptr});
  });
}

template <KernelDevice Dev>
void conv2d_backward_data_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w, Conv2dGeometry geometry,
                             View<Dev> dx, double beta) {
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto shape = cuda::convolution_shape<Dev>(dx, dy, geometry);
    cuda::tile_product<A>(
        dev, dx.rows(), shape.channels, shape.kernel * shape.kernel * shape.out_channels,
        cuda::Receivers<T>{shape, dy.data()}, cuda::WeightsByTap<T>{shape, w.data()},
        cuda::StoreProduct<A, T, T>{1, static_cast<A>(beta), dx.data(), shape.channels, nullptr});
  });
}

/// Sums the pixels in up to 64 parts, so that a small dw occupies many blocks.
template <KernelDevice Dev>
void conv2d_backward_filter_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> dy,
                               Conv2dGeometry geometry, View<Dev> dw, double beta) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto shape = cuda::convolution_shape<Dev>(x, dy, geometry);
    const auto rows = shape.out_channels;
    const auto columns = shape.kernel * shape.kernel * shape.channels;
    const auto pixels = dy.rows();
    if (dw.count() == 0) return;
    const auto parts = std::clamp<std::int64_t>(pixels / 1024, 1, 64);
    Tensor<Dev> partial(dev, dtype_of<A>(), {parts, rows, columns});
    A* const sums = partial.mut().data();
    cuda::tile_product<A>(dev, rows, columns, pixels, cuda::MatrixElement<T>{dy.data(), rows, true},
                          cuda::Patches<T>{shape, x.data()},
                          cuda::StorePart<A>{sums, rows, columns}, parts);
    launch(dev, cuda::grid_for(dev, dw.count()),
           cuda::AddFilterParts<A>{dw.count(), parts, sums, static_cast<A>(beta), dw.data()});
  });
}

}  // namespace dhp::detail
