// Implements conv2d on the Cpu by matrix products packed straight from the images (implicit im2col). With stride s,
// (h, w) modulo s decides which kernel taps a pixel meets, so the input gradient takes s * s products.
#pragma once

#include <dhp/cpu/gemm.hpp>
#include <dhp/ops/conv2d.hpp>

namespace dhp::detail::cpu {

/// The pixels (image, h, w) of a batch, which are rows of a product in this order.
struct Grid {
  std::int64_t images, height, width;

  struct Pixel {
    std::int64_t image, h, w;
  };
  [[nodiscard]] std::int64_t count() const { return images * height * width; }
  [[nodiscard]] Pixel at(std::int64_t pixel) const {
    const auto row = pixel / width;
    return {row / height, row % height, pixel - row * width};
  }
  void advance(Pixel& pixel) const {
    auto& [image, h, w] = pixel;
    if (++w < width) return;
    w = 0;
    if (++h == height) h = 0, ++image;
  }
};

/// The taps of a convolution: taps_w in each row, the first of them at (first_h, first_w) from pixel (0, 0). The next
/// pixel of the grid is `step` pixels of the image further.
struct Window {
  std::int64_t step, first_h, first_w, taps_w;
};

/// A Source (gemm_source.hpp): the matrix [grid pixels, taps * C] of images [N, H, W, C] of S. Row (n, h, w) holds the
/// image pixels (h * step + first_h + th, w * step + first_w + tw), and 0 outside the image.
template <class T, class S>
class ImageSource final : public Source<T> {
 public:
  ImageSource(const S* images, const Shape& shape, Grid grid, Window window, bool lines_along_k)
      : Source<T>(lines_along_k),
        image_(images),
        height_(shape[1]),
        width_(shape[2]),
        channels_(shape[3]),
        tap_row_(window.taps_w * shape[3]),
        grid_(grid),
        window_(window) {}

  [[nodiscard]] const Grid& pixels() const { return grid_; }
  [[nodiscard]] std::int64_t piece() const override { return tap_row_; }
  /// Returns the image rows that only the last row of taps meets. The previous row of the grid has read those above.
  [[nodiscard]] Lines lines(std::int64_t line, std::int64_t count, std::int64_t first,
                            std::int64_t /*length*/) const override {
    if (first > 0) return {};
    const auto pixel = grid_.at(line);
    const auto rows = std::min(window_.step, window_.taps_w);
    const auto row =
        pixel.image * height_ + pixel.h * window_.step + window_.first_h + window_.taps_w - rows;
    const auto size = channels_ * static_cast<std::int64_t>(sizeof(S));
    return {
        reinterpret_cast<const std::byte*>(image_) + (row * width_ + pixel.w * window_.step) * size,
        rows, count * window_.step * size, width_ * size};
  }
  const T* run(std::int64_t line, std::int64_t first, std::int64_t count,
               T* scratch) const override {
    const auto pixel = grid_.at(line);
    const auto th = first / tap_row_;
    const auto from = row(pixel, th, first - th * tap_row_);
    if (first + count <= (th + 1) * tap_row_ && has(from, count))
      return widened(from.from, count, scratch);
    write(pixel, th, first, count, scratch);
    return scratch;
  }
  void copy(std::int64_t line, std::int64_t lines, std::int64_t first, std::int64_t count, T* to,
            std::int64_t stride) const override {
    const auto tap = first / tap_row_;
    for (auto pixel = grid_.at(line); lines > 0; --lines, to += stride, grid_.advance(pixel))
      write(pixel, tap, first, count, to);
  }
  /// Rows of 28 pixels and more give at most max_runs runs, and few panels cross the end of a row of taps.
  [[nodiscard]] bool in_place() const override {
    return std::is_same_v<T, S> && grid_.width >= 28 && tap_row_ >= 64;
  }
  int panel(std::int64_t row, int half, std::int64_t p0, std::int64_t depth, Run<T>* runs,
            std::span<T> scratch) const override {
    return this->along_k ? rows_of_taps(row, half, p0, depth, runs, scratch)
                         : rows_of_pixels(p0, depth, row, half, runs, scratch);
  }

 private:
  /// A row of the image, from an element on. The element may lie outside the image.
  struct Row {
    const S* from;
    std::int64_t at;  ///< index of the element within the row
    std::int64_t h;   ///< index of the row within the image; the row may lie outside, too
  };
  /// Returns the row that a pixel meets with row th of taps, from element `tap` of these taps on.
  [[nodiscard]] Row row(const Grid::Pixel& pixel, std::int64_t th, std::int64_t tap) const {
    const auto h = pixel.h * window_.step + window_.first_h + th;
    const auto at = (pixel.w * window_.step + window_.first_w) * channels_ + tap;
    return {image_ + (pixel.image * height_ + h) * width_ * channels_ + at, at, h};
  }
  [[nodiscard]] bool inside(const Row& row) const { return row.h >= 0 && row.h < height_; }
  /// Returns whether a row has `count` elements in the image.
  [[nodiscard]] bool has(const Row& row, std::int64_t count) const {
    return inside(row) && row.at >= 0 && row.at + count <= width_ * channels_;
  }
  /// Returns `count` elements of a row: in place, or padded and converted at the beginning of `spare`, or null if they
  /// do not fit.
  const T* padded(const Row& row, std::int64_t count, std::span<T>& spare) const {
    if constexpr (std::is_same_v<T, S>)
      if (has(row, count)) return row.from;
    if (count > std::ssize(spare)) return nullptr;
    write_row(row, count, spare.data());
    return std::exchange(spare, spare.subspan(as_size(count))).data();
  }
  /// A panel of pixels: makes a run for each row of taps if the pixels of each half are neighbors in a row of the grid,
  /// else returns 0. Lines of a run may overlap in the image. At borders, the run is a padded copy of an image row.
  int rows_of_taps(std::int64_t line, int half, std::int64_t first, std::int64_t count,
                   Run<T>* runs, std::span<T> spare) const {
    const auto upper = grid_.at(line), lower = grid_.at(line + half);
    const auto between = window_.step * channels_;
    if (std::max(upper.w, lower.w) + half > grid_.width || tap_row_ < 16 || !spreads<T>(between))
      return 0;
    int result = 0;
    for (auto th = first / tap_row_, tap = first - th * tap_row_; count > 0; ++result) {
      const auto length = std::min(count, tap_row_ - tap), all = (half - 1) * between + length;
      const T* const high = padded(row(upper, th, tap), all, spare);
      const T* const low = padded(row(lower, th, tap), all, spare);
      if (result == max_runs || high == nullptr || low == nullptr) return 0;
      runs[result] = {high, low, between, 1, length};
      count -= length;
      tap += length;
      if (tap == tap_row_) tap = 0, ++th;
    }
    return result;
  }
  /// A panel of taps: makes a run for each row of pixels if the panel is in one row of taps, else returns 0. At
  /// borders, a run is a padded copy of one pixel's elements; a row outside the image is one run of zeros.
  int rows_of_pixels(std::int64_t line, std::int64_t count, std::int64_t first, int half,
                     Run<T>* runs, std::span<T> spare) const {
    const auto between = window_.step * channels_;
    const auto th = first / tap_row_, tap = first - th * tap_row_;
    if (tap + 2 * half > tap_row_) return 0;
    int result = 0;
    for (auto pixel = grid_.at(line); count > 0; grid_.advance(pixel), ++result) {
      const Row of = row(pixel, th, tap);
      auto length = std::min(count, grid_.width - pixel.w);
      if (has(of, 2 * half))
        length = std::min(length, (width_ * channels_ - 2 * half - of.at) / between + 1);
      else if (inside(of)) length = 1;
      const T* const from = padded(of, 2 * half, spare);
      if (result == max_runs || from == nullptr) return 0;
      runs[result] = {from, from + half, 1, inside(of) ? between : 0, length};
      count -= length;
      pixel.w += length - 1;
    }
    return result;
  }
  /// Writes elements [first, first + count) of the matrix row of a pixel. th: the row of taps that holds `first`.
  void write(const Grid::Pixel& pixel, std::int64_t th, std::int64_t first, std::int64_t count,
             T* to) const {
    first -= th * tap_row_;  // index within the row of taps
    for (auto of = row(pixel, th, first); count > 0; first = 0) {
      const auto length = std::min(count, tap_row_ - first);
      write_row(of, length, to);
      to += length;
      count -= length;
      of = {of.from + width_ * channels_ - first, of.at - first, of.h + 1};
    }
  }
  /// Writes `count` elements of a row; those outside the image become 0.
  void write_row(const Row& row, std::int64_t count, T* to) const {
    if (has(row, count)) return convert(row.from, to, count);
    const auto begin = inside(row) ? std::clamp(-row.at, std::int64_t{0}, count) : count;
    const auto end = inside(row) ? std::clamp(width_ * channels_ - row.at, begin, count) : count;
    std::fill_n(to, begin, T{});
    convert(row.from + begin, to + begin, end - begin);
    std::fill_n(to + end, count - end, T{});
  }

  const S* image_;
  std::int64_t height_, width_, channels_;
  std::int64_t tap_row_;  // elements that a row of taps meets, which are contiguous in the image
  Grid grid_;
  Window window_;
};

/// Returns whether the convolution is a plain matrix product: one tap, stride 1, no padding.
[[nodiscard]] inline bool is_matrix_product(Conv2dGeometry geometry) {
  return geometry.kernel == 1 && geometry.stride == 1 && geometry.padding == 0;
}
/// Calls body(Source of L): the matrix [pixels of the output, taps * C] of the images x. y: the shape of the output.
template <class L, class T>
void with_patches(ConstView<Cpu> x, const Shape& y, Conv2dGeometry geometry, bool along_k,
                  const auto& body) {
  if (is_matrix_product(geometry))
    return body(MatrixSource<L, T>{x.data<T>(), x.columns(), along_k});
  const std::int64_t stride = geometry.stride, first = -geometry.padding;
  const Window window{stride, first, first, geometry.kernel};
  body(ImageSource<L, T>{x.data<T>(), x.shape(), {y[0], y[1], y[2]}, window, along_k});
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void conv2d_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> w,
                       Conv2dGeometry geometry, View<Cpu> y) {
  cpu::visit_products(dev, x.dtype(), [&]<class E, class T>(TypeTag<E>, TypeTag<T>) {
    using L = cpu::Loaded<E>;
    const auto k = geometry.kernel * geometry.kernel * w.shape()[3];
    const cpu::MatrixSource<L, T> weights{w.data<T>(), k, true};
    cpu::with_patches<L, T>(x, y.shape(), geometry, true, [&](const cpu::Source<L>& image) {
      cpu::Blocks<E>::multiply_all(dev, image, weights, {y.rows(), y.columns(), k}, y);
    });
  });
}
void conv2d_backward_data_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> w,
                             Conv2dGeometry geometry, View<Cpu> dx, double beta) {
  cpu::visit_products(dev, dy.dtype(), [&]<class E, class T>(TypeTag<E>, TypeTag<T>) {
    using L = cpu::Loaded<E>;
    const auto kept = static_cast<cpu::Sum<E>>(beta);
    const auto& in = dx.shape();
    const auto out_channels = w.shape()[0], channels = in[3];
    if (cpu::is_matrix_product(geometry))
      return cpu::Blocks<E>::multiply_all(dev,
                                          cpu::MatrixSource<L, T>{dy.data<T>(), out_channels, true},
                                          cpu::MatrixSource<L, T>{w.data<T>(), channels, false},
                                          {dx.rows(), channels, out_channels}, dx, 1, kept);
    const std::int64_t stride = geometry.stride, kernel = geometry.kernel;
    // Pixel h = stride * p + remainder meets the taps kh = first + stride * t, at the output rows (h + padding - kh) /
    // stride = p + above - t.
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
        const cpu::ImageSource<L, T> image{
            dy.data<T>(),
            dy.shape(),
            {in[0], down.pixels, right.pixels},
            {1, down.above - down.count + 1, right.above - right.count + 1, right.count},
            true};
        // The flipped kernel: a matrix [taps * O, C] of the weights [O, K, K, C] that these pixels meet.
        const auto taps = down.count * right.count, k = taps * out_channels;
        const auto line_at = [&](std::int64_t line) {
          const auto tap = taps - 1 - line / out_channels, o = line % out_channels;
          const auto kh = down.first + stride * (tap / right.count);
          const auto kw = right.first + stride * (tap % right.count);
          return w.data<T>() + ((o * kernel + kh) * kernel + kw) * channels;
        };
        const cpu::LinesSource<L, T> weights(line_at);
        const auto pixel_at = [&](std::int64_t row) {
          const auto pixel = image.pixels().at(row);
          const auto line = pixel.image * in[1] + pixel.h * stride + a;
          return (line * in[2] + pixel.w * stride + b) * channels;
        };
        const cpu::Place place(pixel_at);
        cpu::Blocks<E>::multiply_all(dev, image, weights, {image.pixels().count(), channels, k}, dx,
                                     1, kept, nullptr, &place);
      }
    }
  });
}
void conv2d_backward_filter_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, ConstView<Cpu> dy,
                               Conv2dGeometry geometry, View<Cpu> dw, double beta) {
  cpu::visit_products(dev, x.dtype(), [&]<class E, class T>(TypeTag<E>, TypeTag<T>) {
    using L = cpu::Loaded<E>;
    const auto m = dw.shape()[0];
    const auto n = geometry.kernel * geometry.kernel * dw.shape()[3];
    const auto k = dy.shape()[0] * dy.shape()[1] * dy.shape()[2];
    const cpu::MatrixSource<L, T> gradient{dy.data<T>(), m, false};
    using A = cpu::Sum<E>;
    const auto multiply = [&](const cpu::Source<L>& image) {
      using B = cpu::Blocks<E>;
      constexpr auto columns = cpu::Panel<E, cpu::Native>::columns;
      const auto kept = static_cast<A>(beta);
      // The second factor is packed: this should be the smaller one, and its columns should fill whole panels.
      const bool turns =
          m % columns == 0 && (n % columns != 0 || (!cpu::is_pair<E> && n > m && image.in_place()));
      if (!turns) return B::multiply_all(dev, gradient, image, {m, n, k}, dw.as({m, n}), 1, kept);
      A* const out = dw.data<A>();
      const auto turned = cpu::make_buffer<A>(m * n);  // dw^T
      if (kept != 0)
        for (std::int64_t i = 0; i < m * n; ++i) turned[i] = out[i % m * n + i / m];
      const View<Cpu> to(reinterpret_cast<std::byte*>(turned.get()), dw.dtype(), {n, m});
      B::multiply_all(dev, image, gradient, {n, m, k}, to, 1, kept);
      for (std::int64_t i = 0; i < m * n; ++i) out[i] = turned[i % n * m + i / n];
    };
    cpu::with_patches<L, T>(x, dy.shape(), geometry, false, multiply);
  });
}

}  // namespace dhp::detail
