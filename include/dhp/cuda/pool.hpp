// Pooling on the GPU. Each output is written by one thread, so no kernel needs atomics.
#pragma once

#include <dhp/cuda/matrix_walk.hpp>
#include <dhp/ops/pool.hpp>

#include <bit>

namespace dhp::detail::cuda {

/// Extents of images [N, H, W, C] and of window results [N, OH, OW, C].
struct PoolSizes {
  std::int64_t images, height, width, out_height, out_width, channels;
  int kernel, stride, padding;

  /// begin() and end() return the range of window `out` in a dimension.
  [[nodiscard]] constexpr std::int64_t begin(std::int64_t out) const {
    return std::max<std::int64_t>(out * stride - padding, 0);
  }
  [[nodiscard]] constexpr std::int64_t end(std::int64_t out, std::int64_t extent) const {
    return std::min(out * stride - padding + kernel, extent);
  }
  /// Returns the first window that covers `place`; last_window() returns the number after the last such window.
  [[nodiscard]] constexpr std::int64_t first_window(std::int64_t place) const {
    const auto before = place + padding - kernel + stride;  // it begins after place - kernel
    return before < stride ? 0 : before / stride;
  }
  [[nodiscard]] constexpr std::int64_t last_window(std::int64_t place, std::int64_t count) const {
    return std::min((place + padding) / stride + 1, count);
  }
};

template <class T, int pack>
struct MaxPoolForward {
  using A = Accumulator<T>;
  PoolSizes sizes;
  const T* x;
  T* y;
  std::int32_t* index;

  constexpr void operator()(auto& block) const {
    const auto channels = sizes.channels;
    const auto pixels = sizes.images * sizes.out_height * sizes.out_width;
    for (auto at = walk_by_thread(block, channels / pack); at.row < pixels; at.next()) {
      const auto line = at.row / sizes.out_width;
      const auto out_w = at.row - line * sizes.out_width;
      const auto n = line / sizes.out_height;
      const auto out_h = line - n * sizes.out_height;
      const T* const image = x + n * sizes.height * sizes.width * channels + at.column * pack;
      Pack<T, pack> best =
          load<pack>(image + (sizes.begin(out_h) * sizes.width + sizes.begin(out_w)) * channels);
      Pack<std::int32_t, pack> where;
      for (int i = 0; i < pack; ++i)
        where.at[i] =
            static_cast<std::int32_t>(sizes.begin(out_h) * sizes.width + sizes.begin(out_w));
      for (auto h = sizes.begin(out_h); h < sizes.end(out_h, sizes.height); ++h)
        for (auto w = sizes.begin(out_w); w < sizes.end(out_w, sizes.width); ++w) {
          const auto pixel = h * sizes.width + w;
          const auto in = load<pack>(image + pixel * channels);
          for (int i = 0; i < pack; ++i) {
            const A value = static_cast<A>(in.at[i]);
            const A old = static_cast<A>(best.at[i]);
            const bool wins = value > old || (value != value && old == old);
            best.at[i] = wins ? in.at[i] : best.at[i];
            where.at[i] = wins ? static_cast<std::int32_t>(pixel) : where.at[i];
          }
        }
      const auto place = at.row * channels + at.column * pack;
      store<pack>(y + place, best);
      store<pack>(index + place, where);
    }
  }
};

/// Each pixel gathers from the windows that cover it, in order.
template <class T, int pack>
struct MaxPoolBackward {
  using A = Accumulator<T>;
  PoolSizes sizes;
  const T* dy;
  const std::int32_t* index;
  T* dx;

  constexpr void operator()(auto& block) const {
    const auto channels = sizes.channels;
    const auto pixels = sizes.images * sizes.height * sizes.width;
    for (auto at = walk_by_thread(block, channels / pack); at.row < pixels; at.next()) {
      const auto line = at.row / sizes.width;
      const auto w = at.row - line * sizes.width;
      const auto n = line / sizes.height;
      const auto h = line - n * sizes.height;
      const auto pixel = static_cast<std::int32_t>(h * sizes.width + w);
      Pack<A, pack> sums{};
      for (auto out_h = sizes.first_window(h); out_h < sizes.last_window(h, sizes.out_height);
           ++out_h)
        for (auto out_w = sizes.first_window(w); out_w < sizes.last_window(w, sizes.out_width);
             ++out_w) {
          const auto place = ((n * sizes.out_height + out_h) * sizes.out_width + out_w) * channels +
                             at.column * pack;
          const auto winner = load<pack>(index + place);
          const auto gradient = load<pack>(dy + place);
          for (int i = 0; i < pack; ++i)
            if (winner.at[i] == pixel) sums.at[i] += static_cast<A>(gradient.at[i]);
        }
      store_rounded(dx + at.row * channels + at.column * pack, sums);
    }
  }
};

[[nodiscard]] inline PoolSizes pool_sizes(const Shape& large, const Shape& small,
                                          PoolGeometry geometry) {
  return {large[0], large[1],        large[2],        small[1],        small[2],
          large[3], geometry.kernel, geometry.stride, geometry.padding};
}

/// Global average. `across` threads of a block read the channels of one pixel; the other threads read other pixels.
template <class T, int pack>
struct AveragePoolForward {
  using A = Accumulator<T>;
  static constexpr int threads = 256;
  static constexpr std::size_t shared_bytes = threads * pack * sizeof(A);
  std::int64_t images, pixels, channels;
  int across;  // a power of two, at most a warp
  const T* x;
  T* y;

  constexpr void operator()(auto& block) const {
    const int column = block.thread() % across;
    const int share = block.thread() / across;
    const int shares = threads / across;
    for (auto at = walk_by_block(block, slabs()); at.row < images; at.next()) {
      const auto channel = (at.column * across + column) * pack;
      const bool inside = channel < channels;
      const T* const image = x + at.row * pixels * channels + channel;
      Pack<A, pack> sums{};
      for (std::int64_t pixel = share; pixel < pixels && inside; pixel += shares) {
        const auto in = load<pack>(image + pixel * channels);
        for (int i = 0; i < pack; ++i) sums.at[i] += static_cast<A>(in.at[i]);
      }
      auto* const shared = block.template shared<A>();  // [pack, threads]
      for (int half = shares / 2; half > 0; half /= 2) {
        for (int i = 0; i < pack; ++i) shared[i * threads + block.thread()] = sums.at[i];
        block.sync();
        if (share < half)
          for (int i = 0; i < pack; ++i)
            sums.at[i] += shared[i * threads + block.thread() + half * across];
        block.sync();
      }
      if (share > 0 || !inside) continue;
      for (A& sum : sums.at) sum /= static_cast<A>(pixels);
      store_rounded(y + at.row * channels + channel, sums);
    }
  }
  [[nodiscard]] constexpr std::int64_t slabs() const {
    return (channels + across * pack - 1) / (across * pack);
  }
};

template <class T, int pack>
struct AveragePoolBackward {
  using A = Accumulator<T>;
  std::int64_t images, pixels, channels;
  const T* dy;
  T* dx;

  constexpr void operator()(auto& block) const {
    for (auto at = walk_by_thread(block, channels / pack); at.row < images * pixels; at.next()) {
      const auto in = load<pack>(dy + at.row / pixels * channels + at.column * pack);
      Pack<T, pack> out;
      for (int i = 0; i < pack; ++i)
        out.at[i] = static_cast<T>(static_cast<A>(in.at[i]) / static_cast<A>(pixels));
      store<pack>(dx + at.row * channels + at.column * pack, out);
    }
  }
};

/// Calls body<T, number of channels in a pack>(from, to), unless y is empty.
template <class Dev>
void pool(ConstView<Dev> x, View<Dev> y, const auto& body, const auto*... index) {
  if (y.count() == 0) return;
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = x.data();
    T* const to = y.data();
    const auto run = [&](auto width) { body.template operator()<T, width>(from, to); };
    with_width<pack_size<T>, 1>(y.columns(), run, from, to, index...);
  });
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void max_pool_forward_on(Dev& dev, ConstView<Dev> x, PoolGeometry geometry, View<Dev> y,
                         View<Dev> index) {
  const auto sizes = cuda::pool_sizes(x.shape(), y.shape(), geometry);
  auto* const where = index.template data<std::int32_t>();
  const auto body = [&]<class T, int pack>(const T* from, T* to) {
    launch(dev, cuda::grid_for(dev, y.count() / pack),
           cuda::MaxPoolForward<T, pack>{sizes, from, to, where});
  };
  cuda::pool<Dev>(x, y, body, where);
}
template <KernelDevice Dev>
void max_pool_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> index, PoolGeometry geometry,
                          View<Dev> dx) {
  const auto sizes = cuda::pool_sizes(dx.shape(), dy.shape(), geometry);
  const auto* const where = index.template data<std::int32_t>();
  const auto body = [&]<class T, int pack>(const T* from, T* to) {
    launch(dev, cuda::grid_for(dev, dx.count() / pack),
           cuda::MaxPoolBackward<T, pack>{sizes, from, where, to});
  };
  cuda::pool<Dev>(dy, dx, body, where);
}
template <KernelDevice Dev>
void global_average_pool_forward_on(Dev& dev, ConstView<Dev> x, View<Dev> y) {
  const auto& shape = x.shape();
  const auto body = [&]<class T, int pack>(const T* from, T* to) {
    using Kernel = cuda::AveragePoolForward<T, pack>;
    const auto packs =
        static_cast<std::uint64_t>(std::min<std::int64_t>(shape[3] / pack, cuda::warp_size));
    const Kernel kernel{
        shape[0], shape[1] * shape[2], shape[3], static_cast<int>(std::bit_ceil(packs)), from, to};
    const auto blocks = std::min<std::int64_t>(shape[0] * kernel.slabs(), cuda::max_blocks(dev));
    launch(dev, {blocks, Kernel::threads, Kernel::shared_bytes}, kernel);
  };
  cuda::pool<Dev>(x, y, body);
}
template <KernelDevice Dev>
void global_average_pool_backward_on(Dev& dev, ConstView<Dev> dy, View<Dev> dx) {
  const auto& shape = dx.shape();
  const auto body = [&]<class T, int pack>(const T* from, T* to) {
    launch(dev, cuda::grid_for(dev, dx.count() / pack),
           cuda::AveragePoolBackward<T, pack>{shape[0], shape[1] * shape[2], shape[3], from, to});
  };
  cuda::pool<Dev>(dy, dx, body);
}

}  // namespace dhp::detail
