// conv2d on the Cpu: matrix products packed straight from the images (implicit im2col). With stride
// s, pixels see different kernel taps by (h, w) modulo s: s * s products give the input gradient.
#pragma once

#include <dhp/cpu/gemm.hpp>
#include <dhp/ops/conv2d.hpp>

namespace dhp::detail::cpu {

/// The matrix [grid pixels, taps * C] of an image [N, H, W, C]: row (n, h, w) holds the pixels (h *
/// step + first_h + th, w * step + first_w + tw), 0 outside the image. A Source (gemm_pack.hpp).
template <class T, class S>
struct ImageSource {
  const S* image;
  std::int64_t height, width, channels;
  std::int64_t grid_height, grid_width;
  std::int64_t step, first_h, first_w;
  std::int64_t taps_w;
  bool deep;

  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    const auto row = line / grid_width;
    const auto left = ((line - row * grid_width) * step + first_w) * channels;
    const auto n = row / grid_height;
    const auto top = (row - n * grid_height) * step + first_h;
    const auto tap_row = taps_w * channels;  // contiguous in the image except at the border
    const auto end = first + count;
    T* out = scratch;
    for (auto th = first / tap_row; first < end; ++th) {
      const auto stop = std::min(end, (th + 1) * tap_row);
      const auto h = top + th;
      const auto shift = left - th * tap_row;  // offset from a column here to the image row
      auto from = stop;
      auto to = stop;
      if (h >= 0 && h < height) {
        from = std::clamp(-shift, first, stop);
        to = std::clamp(width * channels - shift, from, stop);
      }
      const S* pixels = image + (n * height + h) * width * channels + shift;
      if constexpr (std::is_same_v<T, S>) {
        if (from == end - count && to == end) return pixels + from;  // one contiguous run
      }
      std::fill(out, out + (from - first), T{});
      out += from - first;
      if constexpr (std::is_same_v<T, S>) {
        out = std::copy(pixels + from, pixels + to, out);
      } else {
        convert(pixels + from, out, to - from);
        out += to - from;
      }
      std::fill(out, out + (stop - to), T{});
      out += stop - to;
      first = stop;
    }
    return scratch;
  }
  /// Fetches only the first row of taps.
  void prefetch(std::int64_t line, std::int64_t first, std::int64_t count) const {
    const auto row = line / grid_width;
    const auto n = row / grid_height;
    const auto tap_row = taps_w * channels;
    const auto h = (row - n * grid_height) * step + first_h + first / tap_row;
    if (h < 0 || h >= height) return;
    const auto in_row = first % tap_row;
    const auto left = ((line - row * grid_width) * step + first_w) * channels + in_row;
    const auto from = std::max<std::int64_t>(left, 0);
    const auto to = std::min(left + std::min(count, tap_row - in_row), width * channels);
    if (from < to) cpu::prefetch(image + (n * height + h) * width * channels + from, to - from);
  }
};

/// The flipped kernel: the matrix [taps * O, C] of weights [O, K, K, C] that some input pixels see,
/// taps first_h - step * th downwards. A Source.
template <class T, class S>
struct TurnedWeights {
  const S* weights;
  std::int64_t out_channels, kernel, channels;
  std::int64_t step, last_h, last_w;
  std::int64_t taps_w;
  bool deep = false;

  /// A line, as a matrix of one.
  [[nodiscard]] MatrixSource<T, S> at(std::int64_t line) const {
    const auto tap = line / out_channels;
    const auto o = line - tap * out_channels;
    const auto kh = last_h - step * (tap / taps_w);
    const auto kw = last_w - step * (tap % taps_w);
    return {weights + ((o * kernel + kh) * kernel + kw) * channels, 0, false};
  }
  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    return at(line).run(0, first, count, scratch);
  }
  void prefetch(std::int64_t line, std::int64_t first, std::int64_t count) const {
    at(line).prefetch(0, first, count);
  }
};

/// Calls body(Tag<E>, Tag<T>) with the elements of panels and of images.
void visit_products(const Cpu& dev, DType type, const auto& body) {
  visit_floating(type, [&]<class T>(Tag<T> images) {
    visit_elements<T>(dev, [&](auto panels) { body(panels, images); });
  });
}
/// With one tap and stride 1 a convolution is a matrix product.
[[nodiscard]] inline bool is_matrix_product(Conv2dGeometry geometry) {
  return geometry.kernel == 1 && geometry.stride == 1 && geometry.padding == 0;
}
template <class E, class T>
ImageSource<Loaded<E>, T> patches(ConstView<Cpu> x, const Shape& y, Conv2dGeometry geometry,
                                  bool deep) {
  const auto& in = x.shape();
  return {x.data<T>(),
          in[1],
          in[2],
          in[3],
          y[1],
          y[2],
          geometry.stride,
          -geometry.padding,
          -geometry.padding,
          geometry.kernel,
          deep};
}
/// The product of `image` and `weights`; row r goes to out + place(r), and is added to beta times what is there.
template <class E, class T>
void product(Cpu& dev, const Source<Loaded<E>>& image, const Source<Loaded<E>>& weights,
             std::int64_t m, std::int64_t n, std::int64_t k, T* out, Sum<E> beta,
             FunctionRef<std::int64_t(std::int64_t)> place) {
  using A = Sum<E>;
  if (k == 0 && beta == A(0))  // strides leave pixels out
    return dev.for_ranges(m, 64, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) std::fill_n(out + place(row), n, T{});
    });
  Blocks<E>::multiply_rows(
      dev, image, weights, m, n, k, A(1), nullptr,
      [&](std::int64_t row, std::int64_t column, std::int64_t count, const A* values) {
        T* to = out + place(row) + column;
        if (beta == A(0)) return convert(values, to, count);
        for (std::int64_t j = 0; j < count; ++j)
          to[j] = static_cast<T>(beta * static_cast<A>(to[j]) + values[j]);
      });
}
template <class E, class T>
void dense_product(Cpu& dev, const Source<Loaded<E>>& image, const Source<Loaded<E>>& weights,
                   std::int64_t m, std::int64_t n, std::int64_t k, T* out, Sum<E> beta = 0) {
  if constexpr (std::is_same_v<T, Sum<E>>)
    Blocks<E>::multiply_all(&dev, image, weights, m, n, k, {out, n, Sum<E>(1), beta, nullptr});
  else
    product<E>(dev, image, weights, m, n, k, out, beta, [n](std::int64_t row) { return row * n; });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void conv2d_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> w,
                       Conv2dGeometry geometry, View<Cpu> y) {
  cpu::visit_products(dev, x.dtype(), [&]<class E, class T>(Tag<E>, Tag<T>) {
    using L = cpu::Loaded<E>;
    const auto out_channels = w.shape()[0];
    const auto m = y.shape()[0] * y.shape()[1] * y.shape()[2];
    const auto k = geometry.kernel * geometry.kernel * w.shape()[3];
    const cpu::MatrixSource<L, T> weights{w.data<T>(), k, true};
    if (cpu::is_matrix_product(geometry))
      cpu::dense_product<E>(dev, cpu::MatrixSource<L, T>{x.data<T>(), k, true}, weights, m,
                            out_channels, k, y.data<T>());
    else
      cpu::dense_product<E>(dev, cpu::patches<E, T>(x, y.shape(), geometry, true), weights, m,
                            out_channels, k, y.data<T>());
  });
}
void conv2d_backward_data_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> w,
                             Conv2dGeometry geometry, View<Cpu> dx, double beta) {
  cpu::visit_products(dev, dy.dtype(), [&]<class E, class T>(Tag<E>, Tag<T>) {
    using L = cpu::Loaded<E>;
    const auto kept = static_cast<cpu::Sum<E>>(beta);
    const auto& in = dx.shape();
    const auto& grid = dy.shape();
    const auto out_channels = w.shape()[0];
    const auto channels = in[3];
    T* const out = dx.data<T>();
    if (cpu::is_matrix_product(geometry)) {
      cpu::dense_product<E>(dev, cpu::MatrixSource<L, T>{dy.data<T>(), out_channels, true},
                            cpu::MatrixSource<L, T>{w.data<T>(), channels, false},
                            in[0] * in[1] * in[2], channels, out_channels, out, kept);
      return;
    }
    const std::int64_t stride = geometry.stride;
    const std::int64_t kernel = geometry.kernel;
    // Pixel h = stride * p + remainder sees taps kh = first + stride * t at output row (h + padding -
    // kh) / stride = p + above - t.
    struct Taps {
      std::int64_t pixels, first, count, above;
    };
    const auto taps_of = [&](std::int64_t extent, std::int64_t remainder) -> Taps {
      const auto first = (remainder + geometry.padding) % stride;
      return {(extent - remainder + stride - 1) / stride, first,
              first < kernel ? (kernel - first + stride - 1) / stride : 0,
              (remainder + geometry.padding - first) / stride};
    };
    for (std::int64_t a = 0; a < std::min(stride, in[1]); ++a) {
      for (std::int64_t b = 0; b < std::min(stride, in[2]); ++b) {
        const auto down = taps_of(in[1], a);
        const auto right = taps_of(in[2], b);
        const cpu::ImageSource<L, T> image{dy.data<T>(),
                                           grid[1],
                                           grid[2],
                                           out_channels,
                                           down.pixels,
                                           right.pixels,
                                           1,
                                           down.above - down.count + 1,
                                           right.above - right.count + 1,
                                           right.count,
                                           true};
        const cpu::TurnedWeights<L, T> weights{w.data<T>(),
                                               out_channels,
                                               kernel,
                                               channels,
                                               stride,
                                               down.first + stride * (down.count - 1),
                                               right.first + stride * (right.count - 1),
                                               right.count};
        const auto m = in[0] * down.pixels * right.pixels;
        const auto k = down.count * right.count * out_channels;
        if (stride == 1) {
          cpu::dense_product<E>(dev, image, weights, m, channels, k, out, kept);
          continue;
        }
        cpu::product<E>(dev, image, weights, m, channels, k, out, kept, [&](std::int64_t row) {
          const auto line = row / right.pixels;
          const auto n = line / down.pixels;
          const auto h = (line - n * down.pixels) * stride + a;
          return ((n * in[1] + h) * in[2] + (row - line * right.pixels) * stride + b) * channels;
        });
      }
    }
  });
}
void conv2d_backward_filter_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> dy,
                               Conv2dGeometry geometry, View<Cpu> dw, double beta) {
  cpu::visit_products(dev, x.dtype(), [&]<class E, class T>(Tag<E>, Tag<T>) {
    using L = cpu::Loaded<E>;
    const auto m = dw.shape()[0];
    const auto n = geometry.kernel * geometry.kernel * dw.shape()[3];
    const auto k = dy.shape()[0] * dy.shape()[1] * dy.shape()[2];
    const cpu::MatrixSource<L, T> gradient{dy.data<T>(), m, false};
    using A = cpu::Sum<E>;
    const cpu::Target<A> to{dw.data<A>(), n, A(1), static_cast<A>(beta), nullptr};
    if (cpu::is_matrix_product(geometry))
      cpu::Blocks<E>::multiply_all(&dev, gradient, cpu::MatrixSource<L, T>{x.data<T>(), n, false},
                                   m, n, k, to);
    else
      cpu::Blocks<E>::multiply_all(&dev, gradient,
                                   cpu::patches<E, T>(x, dy.shape(), geometry, false), m, n, k, to);
  });
}

}  // namespace dhp::detail
