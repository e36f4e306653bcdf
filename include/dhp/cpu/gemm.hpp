// gemm on the Cpu: packed panels over fixed tiles of C. Tiles depend only on the shape, so the
// number of threads changes no bit. Packing widens 16-bit matrices to f32.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm_pack.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp::detail::cpu {

/// A matrix of any floating-point type, as a Source.
template <class T>
struct ViewSource {
  ConstView<Cpu> view;
  std::int64_t stride;
  bool deep;

  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    return read<T>(view, line * stride + first, count, scratch);
  }
};

/// One tile: rows x columns of C from sources A and B, in blocks of k. T: float or double.
template <class T>
struct Blocks {
  static constexpr std::int64_t depth = 256;  // a panel of A fits L1
  static constexpr std::int64_t group = 112;  // rows of A that are packed together, about
  static constexpr std::int64_t columns = 2048 / sizeof(T);  // depth x columns of B fit L2

  /// Splits C [m, n] into tiles: near-equal row ranges times `columns`. Low tiles pack B too often,
  /// high ones give too little parallelism: at most 1120 rows, at least 256 even for under 4 tiles.
  struct Tiles {
    std::int64_t rows, across, count;

    Tiles(std::int64_t m, std::int64_t n) : across((n + columns - 1) / columns) {
      const auto enough = across == 0 ? 0 : std::min(m / 256, (3 + across) / across);
      const auto parts = std::max<std::int64_t>({(m + 1119) / 1120, enough, 1});
      const auto panels = (m + 41) / 42;  // a multiple of 6 and of 14, the panel heights
      rows = std::max<std::int64_t>((panels + parts - 1) / parts, 1) * 42;
      count = (m + rows - 1) / rows * across;
    }
  };

  /// Writes [row, row + count_rows) x [column, column + count_columns) of the product to `to`,
  /// which points to element (row, column).
  template <class R>
  static void multiply(R registers, const Source<T>& a, const Source<T>& b, std::int64_t row,
                       std::int64_t count_rows, std::int64_t column, std::int64_t count_columns,
                       std::int64_t k, const Target<T>& to) {
    using P = Panel<T, R>;
    constexpr auto high_group = group / P::rows * P::rows;
    const auto most = std::min(depth, k);
    const auto panels = (count_columns + P::columns - 1) / P::columns;
    const auto panels_a = (std::min(high_group, count_rows) + P::rows - 1) / P::rows;
    const auto size_a = most * panels_a * P::row_stride;
    const auto size_b = most * panels * P::columns;
    const auto scratch = std::max({most * pack_width<T>, panels * P::columns, group});
    const auto buffer = make_buffer<T>(size_a + size_b + scratch);
    T* const packed_a = buffer.get();
    T* const packed_b = packed_a + size_a;
    T* const spare = packed_b + size_b;
    std::int64_t p0 = 0;
    do {  // one pass even for k = 0: c = beta c + bias
      const auto deep = std::min(depth, k - p0);
      pack_b<R>(b, column, count_columns, p0, deep, packed_b, spare);
      Target<T> part = to;
      if (p0 > 0) {
        part.beta = 1;
        part.bias = nullptr;
      }
      for (std::int64_t i0 = 0; i0 < count_rows; i0 += high_group) {
        const auto high = std::min(high_group, count_rows - i0);
        pack_a<R>(a, row + i0, high, p0, deep, packed_a, spare);
        for (std::int64_t i = 0; i < high; i += P::rows) {
          const T* const left = packed_a + i / P::rows * deep * P::row_stride;
          const int tall = static_cast<int>(std::min<std::int64_t>(P::rows, high - i));
          for (std::int64_t j = 0; j < count_columns; j += P::columns) {
            Target<T> at = part;
            at.c += (i0 + i) * to.stride + j;
            if (at.bias != nullptr) at.bias += j;
            const int wide =
                static_cast<int>(std::min<std::int64_t>(P::columns, count_columns - j));
            multiply_panel(registers, deep, left, packed_b + j * deep, at, tall, wide);
          }
        }
      }
      p0 += deep;
    } while (p0 < k);
  }

  /// Calls body(row, rows, column, columns) per tile of C [m, n].
  static void visit_tile(const Tiles& tiles, std::int64_t tile, std::int64_t m, std::int64_t n,
                         const auto& body) {
    const auto row = tile / tiles.across * tiles.rows;
    const auto column = tile % tiles.across * columns;
    body(row, std::min(tiles.rows, m - row), column, std::min(columns, n - column));
  }

  /// c [m, n] = alpha op(A) op(B) + beta c + bias. dev: its threads share the tiles; null: the calling thread has them.
  static void multiply_all(Cpu* dev, const Source<T>& a, const Source<T>& b, std::int64_t m,
                           std::int64_t n, std::int64_t k, const Target<T>& to) {
    const Tiles tiles(m, n);
    const auto one = [&](std::int64_t tile) {
      visit_tile(tiles, tile, m, n, [&](auto row, auto high, auto column, auto wide) {
        Target<T> part = to;
        part.c += row * to.stride + column;
        if (to.bias != nullptr) part.bias += column;
        with_widest_registers(
            [&](auto registers) { multiply(registers, a, b, row, high, column, wide, k, part); });
      });
    };
    if (dev != nullptr) return dev->for_tiles(tiles.count, one);
    for (std::int64_t tile = 0; tile < tiles.count; ++tile) one(tile);
  }

  /// alpha op(A) op(B) + bias, passed row by row to store, for outputs of another type or layout. bias is null or [n].
  using Store =
      FunctionRef<void(std::int64_t row, std::int64_t column, std::int64_t count, const T* values)>;
  static void multiply_rows(Cpu& dev, const Source<T>& a, const Source<T>& b, std::int64_t m,
                            std::int64_t n, std::int64_t k, T alpha, const T* bias, Store store) {
    const Tiles tiles(m, n);
    dev.for_tiles(tiles.count, [&](std::int64_t tile) {
      visit_tile(tiles, tile, m, n, [&](auto row, auto high, auto column, auto wide) {
        const auto values = make_buffer<T>(high * wide);
        const Target<T> to{values.get(), wide, alpha, T(0), bias == nullptr ? bias : bias + column};
        with_widest_registers(
            [&](auto registers) { multiply(registers, a, b, row, high, column, wide, k, to); });
        for (std::int64_t i = 0; i < high; ++i)
          store(row + i, column, wide, values.get() + i * wide);
      });
    });
  }
};

/// Row-major, dense C [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C in the calling thread, with
/// the bits of gemm(). ta: A is stored [k, m]; tb: B is stored [n, k]. With beta 0 C is not read.
template <class T>
void serial_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                 const T* a, const T* b, double beta, T* c) {
  const MatrixSource<T, T> left{a, ta ? m : k, !ta};
  const MatrixSource<T, T> right{b, tb ? k : n, tb};
  const Target<T> to{c, n, static_cast<T>(alpha), static_cast<T>(beta), nullptr};
  Blocks<T>::multiply_all(nullptr, left, right, m, n, k, to);
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void gemm_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> a, ConstView<Cpu> b, View<Cpu> c,
             const GemmOptions& options, ConstView<Cpu> bias) {
  visit_accumulator(accumulation_type(a.dtype()), [&]<class A>(Tag<A>) {
    const auto [m, n, k] = gemm_size<Cpu>(b, c, options);
    const auto stride = c.shape()[1];
    const cpu::ViewSource<A> left{a, a.shape()[1], !options.transpose_a};
    const cpu::ViewSource<A> right{b, b.shape()[1], options.transpose_b};
    const A alpha = static_cast<A>(options.alpha);
    const A beta = static_cast<A>(options.beta);
    const bool converted = !bias.empty() && bias.dtype() != dtype_of<A>();
    const auto wide_bias = converted ? cpu::make_buffer<A>(n) : cpu::Buffer<A>();
    const A* const add =
        bias.empty() ? nullptr : cpu::read<A>(bias, 0, bias.count(), wide_bias.get());
    if (c.dtype() == dtype_of<A>())
      return cpu::Blocks<A>::multiply_all(&dev, left, right, m, n, k,
                                          {c.data<A>(), stride, alpha, beta, add});
    cpu::Blocks<A>::multiply_rows(
        dev, left, right, m, n, k, alpha, add,
        [=](std::int64_t row, std::int64_t column, std::int64_t count, const A* values) {
          A sums[cpu::Blocks<A>::columns];
          const auto first = row * stride + column;
          if (beta != 0) {
            (void)cpu::read<A>(c, first, count, sums);
            for (std::int64_t j = 0; j < count; ++j) sums[j] = values[j] + beta * sums[j];
          }
          cpu::write<A>(c, first, count, beta == 0 ? values : sums);
        });
  });
}

}  // namespace dhp::detail
