// Global average pooling on the GPU.
#pragma once

#include <dhp/cuda/matrix_walk.hpp>
#include <dhp/ops/pool.hpp>

#include <bit>

namespace dhp::cuda {

/// A block takes the channels of one image that `across` threads read together; the other threads
/// take other pixels.
template <class T, int pack>
struct AveragePoolForward {
  using A = Accumulator<T>;
  static constexpr int threads = 256;
  static constexpr std::size_t shared_bytes = threads * pack * sizeof(A);
  std::int64_t images, pixels, channels;
  int across;  // a power of two, at most a warp
  const T* x;
  T* y;

  template <class B>
  constexpr void operator()(B& block) const {
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
      Pack<T, pack> out;
      for (int i = 0; i < pack; ++i)
        out.at[i] = static_cast<T>(sums.at[i] / static_cast<A>(pixels));
      store<pack>(y + at.row * channels + channel, out);
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

  template <class B>
  constexpr void operator()(B& block) const {
    for (auto at = walk_by_thread(block, channels / pack); at.row < images * pixels; at.next()) {
      const auto in = load<pack>(dy + at.row / pixels * channels + at.column * pack);
      Pack<T, pack> out;
      for (int i = 0; i < pack; ++i)
        out.at[i] = static_cast<T>(static_cast<A>(in.at[i]) / static_cast<A>(pixels));
      store<pack>(dx + at.row * channels + at.column * pack, out);
    }
  }
};

/// Calls body(integral_constant of the channels per load).
template <class T, class Body, class... P>
void of_channel_pack(std::int64_t channels, Body&& body, const P*... pointers) {
  if (packs_fit<pack_size<T>>(channels, pointers...))
    body(std::integral_constant<int, pack_size<T>>{});
  else body(std::integral_constant<int, 1>{});
}

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
void global_average_pool_forward_on(Dev& dev, ConstView<Dev> x, View<Dev> y) {
  if (y.count() == 0) return;
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    const T* const from = x.template data<T>();
    T* const to = y.template data<T>();
    const auto& shape = x.shape();
    const auto run = [&]<int pack>(std::integral_constant<int, pack>) {
      using Kernel = cuda::AveragePoolForward<T, pack>;
      const auto packs =
          static_cast<std::uint64_t>(std::min<std::int64_t>(shape[3] / pack, cuda::warp_size));
      const Kernel kernel{shape[0], shape[1] * shape[2],
                          shape[3], static_cast<int>(std::bit_ceil(packs)),
                          from,     to};
      const auto blocks = std::min<std::int64_t>(shape[0] * kernel.slabs(), 132 * 16);
      launch(dev, {blocks, Kernel::threads, Kernel::shared_bytes}, kernel);
    };
    cuda::of_channel_pack<T>(shape[3], run, from, to);
  });
}
template <KernelDevice Dev>
void global_average_pool_backward_on(Dev& dev, ConstView<Dev> dy, View<Dev> dx) {
  if (dx.count() == 0) return;
  visit_floating(dy.dtype(), [&]<class T>(Tag<T>) {
    const T* const from = dy.template data<T>();
    T* const to = dx.template data<T>();
    const auto& shape = dx.shape();
    const auto run = [&]<int pack>(std::integral_constant<int, pack>) {
      launch(dev, cuda::grid_for(dx.count() / pack),
             cuda::AveragePoolBackward<T, pack>{shape[0], shape[1] * shape[2], shape[3], from, to});
    };
    cuda::of_channel_pack<T>(shape[3], run, from, to);
  });
}

}  // namespace dhp
