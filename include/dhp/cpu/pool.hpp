// Implements pooling on the Cpu. Threads share output rows in max_pool_forward, and images in the other ops.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/ops/pool.hpp>

#include <vector>

namespace dhp::detail {

void max_pool_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, PoolGeometry geometry,
                         View<Cpu> y, View<Cpu> index) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto height = x.shape()[1], width = x.shape()[2], channels = x.shape()[3];
    const auto out_height = y.shape()[1], out_width = y.shape()[2];
    const T* const images = x.data<T>();
    dev.for_tiles(y.shape()[0] * out_height, [=](std::int64_t line) {
      const auto n = line / out_height;
      const auto top = line % out_height * geometry.stride - geometry.padding;
      const auto h_first = std::max<std::int64_t>(top, 0);
      const auto h_last = std::min(top + geometry.kernel, height);
      const T* const image = images + n * height * width * channels;
      for (std::int64_t w_out = 0; w_out < out_width; ++w_out) {
        const auto left = w_out * geometry.stride - geometry.padding;
        const auto w_first = std::max<std::int64_t>(left, 0);
        const auto w_last = std::min(left + geometry.kernel, width);
        const auto to = (line * out_width + w_out) * channels;
        cpu::in_row_blocks<A>(channels, [&](std::int64_t first, std::int64_t count) {
          A best[cpu::row_block], values[cpu::row_block];
          std::int32_t where[cpu::row_block];
          for (auto h = h_first; h < h_last; ++h)
            for (auto w = w_first; w < w_last; ++w) {
              const auto pixel = static_cast<std::int32_t>(h * width + w);
              cpu::convert(image + pixel * channels + first, values, count);
              if (h == h_first && w == w_first) {
                std::copy(values, values + count, best);
                std::fill(where, where + count, pixel);
                continue;
              }
              for (std::int64_t c = 0; c < count; ++c) {
                const A value = values[c], old = best[c];
                const bool wins = !(value <= old) && old == old;  // the first NaN stays
                best[c] = wins ? value : old;
                where[c] = wins ? pixel : where[c];
              }
            }
          std::copy(where, where + count, index.data<std::int32_t>() + to + first);
          cpu::convert(best, y.data<T>() + to + first, count);
        });
      }
    });
  });
}

void max_pool_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> index,
                          PoolGeometry, View<Cpu> dx) {
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto channels = dx.shape()[3];
    const auto pixels = dx.shape()[1] * dx.shape()[2];
    const auto out_pixels = dy.shape()[1] * dy.shape()[2];
    dev.for_tiles(dx.shape()[0], [&](std::int64_t n) {
      const T* const gradient = dy.data<T>() + n * out_pixels * channels;
      const std::int32_t* const where = index.data<std::int32_t>() + n * out_pixels * channels;
      T* const out = dx.data<T>() + n * pixels * channels;
      const auto add_to = [&](A* sums) {
        std::fill(sums, sums + pixels * channels, A(0));
        for (std::int64_t p = 0; p < out_pixels * channels; p += channels)
          for (auto c = p; c < p + channels; ++c) {
            check(where[c] >= 0 && where[c] < pixels, "max_pool_backward: index ", where[c],
                  " is outside an image of ", pixels, " pixels");
            sums[where[c] * channels + c - p] += static_cast<A>(gradient[c]);
          }
      };
      if constexpr (std::is_same_v<T, A>) {
        add_to(out);
      } else {  // sums in A and rounds once
        std::vector<A> sums(as_size(pixels * channels));
        add_to(sums.data());
        cpu::convert(sums.data(), out, pixels * channels);
      }
    });
  });
}

void global_average_pool_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto channels = x.shape()[3];
    const auto pixels = x.shape()[1] * x.shape()[2];
    dev.for_tiles(x.shape()[0], [&](std::int64_t n) {
      std::vector<double> sums(as_size(channels));  // a long sum of floats would lose digits
      const T* from = x.data<T>() + n * pixels * channels;
      for (std::int64_t p = 0; p < pixels; ++p, from += channels)
        for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += static_cast<A>(from[c]);
      T* const to = y.data<T>() + n * channels;
      for (std::size_t c = 0; c < sums.size(); ++c)
        to[c] = static_cast<T>(static_cast<A>(sums[c] / static_cast<double>(pixels)));
    });
  });
}

void global_average_pool_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, View<Cpu> dx) {
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto channels = dx.shape()[3];
    const auto pixels = dx.shape()[1] * dx.shape()[2];
    dev.for_tiles(dx.shape()[0], [&](std::int64_t n) {
      const T* const from = dy.data<T>() + n * channels;
      T* const first = dx.data<T>() + n * pixels * channels;
      for (std::int64_t c = 0; c < channels; ++c)
        first[c] = static_cast<T>(static_cast<A>(from[c]) / static_cast<A>(pixels));
      for (std::int64_t p = 1; p < pixels; ++p)
        std::copy(first, first + channels, first + p * channels);
    });
  });
}

}  // namespace dhp::detail
