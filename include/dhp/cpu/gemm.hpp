// gemm on the Cpu: packed panels over fixed tiles of C. Tiles depend only on the shape, so the
// number of threads changes no bit. Packing widens 16-bit matrices to f32, or pairs bf16 where the machine
// multiplies pairs.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm_pack.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp::detail::cpu {

/// A matrix of any floating-point type as a Source of float or double, or one of bf16.
template <class T>
struct ViewSource {
  ConstView<Cpu> view;
  std::int64_t stride;
  bool deep;

  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    if constexpr (std::is_same_v<T, bf16>) return view.data<T>() + line * stride + first;
    else return read<T>(view, line * stride + first, count, scratch);
  }
  void prefetch(std::int64_t line, std::int64_t first, std::int64_t count) const {
    const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
    cpu::prefetch(view.bytes() + (line * stride + first) * size, count * size);
  }
};

/// Calls body(Tag<E>). Panels of products of T are packed as E: pairs of bf16 where the processor multiplies pairs.
template <class T>
void visit_elements(const Cpu& dev, const auto& body) {
  if constexpr (has_pair_kernel && std::is_same_v<T, bf16>)
    if (dev.bf16_pairs() && multiplies_pairs()) return body(Tag<Pair>{});
  body(Tag<Accumulator<T>>{});
}

/// One tile: rows x columns of C from sources A and B, in blocks of k. E: float, double or Pair.
template <class E>
struct Blocks {
  using T = Sum<E>;
  using From = Source<Loaded<E>>;
  static constexpr bool pairs = std::is_same_v<E, Pair>;
  static constexpr std::int64_t depth = pairs ? 128 : 256;  // of 256 along k; a panel of A fits L1
  static constexpr std::int64_t group = 112;  // rows of A that are packed together, about
  static constexpr std::int64_t columns = 2048 / sizeof(E);  // depth x columns of B fit L2

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

  /// Rows [first, first + count) of a tile are done.
  using Done = FunctionRef<void(std::int64_t first, std::int64_t count)>;

  /// Writes [row, row + count_rows) x [column, column + count_columns) of the product to `to`,
  /// which points to element (row, column), or to that of the present group of rows.
  template <class R>
  static void multiply(
      R registers, const From& from_a, const From& from_b, std::int64_t row,
      std::int64_t count_rows, std::int64_t column, std::int64_t count_columns, std::int64_t length,
      const Target<T>& to, bool one_group = false, Done done = [](auto...) {}) {
    using P = Panel<E, R>;
    const auto k = pairs ? (length + 1) / 2 : length;
    const auto a = elements<E>(from_a, length), b = elements<E>(from_b, length);
    constexpr auto high_group = group / P::rows * P::rows;
    const auto most = std::min(depth, k);
    const auto panels = (count_columns + P::columns - 1) / P::columns;
    const auto panels_a = (std::min(high_group, count_rows) + P::rows - 1) / P::rows;
    const auto size_a = most * panels_a * P::row_stride;
    const auto size_b = most * panels * P::columns;
    const auto scratch =
        std::max(most * pack_width<E>, (flat_lines + 1) * std::max(panels * P::columns, group));
    const auto buffer = make_buffer<E>(size_a + size_b + scratch);
    E* const packed_a = buffer.get();
    E* const packed_b = packed_a + size_a;
    E* const spare = packed_b + size_b;
    std::int64_t p0 = 0;
    do {  // one pass even for k = 0: c = beta c + bias
      const auto deep = std::min(depth, k - p0);
      pack_b<R>(b, column, count_columns, p0, deep, packed_b, spare);
      // While panels are multiplied, what is packed next comes nearer: the next rows of A, or the next block along k.
      constexpr int along = pairs ? 2 : 1;
      const auto later = p0 + deep;
      const auto later_deep = along * std::min(depth, k - later);
      Ahead<Loaded<E>> ahead_b(from_b, column, count_columns, along * later, later_deep,
                               (count_rows + P::rows - 1) / P::rows * panels);
      Target<T> part = to;
      if (p0 > 0) {
        part.beta = 1;
        part.bias = nullptr;
      }
      for (std::int64_t i0 = 0; i0 < count_rows; i0 += high_group) {
        const auto high = std::min(high_group, count_rows - i0);
        pack_a<R>(a, row + i0, high, p0, deep, packed_a, spare);
        const auto below = i0 + high;
        const bool next_rows = below < count_rows;
        Ahead<Loaded<E>> ahead_a(from_a, next_rows ? row + below : row,
                                 std::min(high_group, next_rows ? count_rows - below : count_rows),
                                 along * (next_rows ? p0 : later),
                                 next_rows ? along * deep : later_deep,
                                 (high + P::rows - 1) / P::rows * panels);
        for (std::int64_t i = 0; i < high; i += P::rows) {
          const E* const left = packed_a + i / P::rows * deep * P::row_stride;
          const int tall = static_cast<int>(std::min<std::int64_t>(P::rows, high - i));
          for (std::int64_t j = 0; j < count_columns; j += P::columns) {
            ahead_a.prefetch();
            ahead_b.prefetch();
            Target<T> at = part;
            at.c += ((one_group ? 0 : i0) + i) * to.stride + j;
            if (at.bias != nullptr) at.bias += j;
            const int wide =
                static_cast<int>(std::min<std::int64_t>(P::columns, count_columns - j));
            multiply_panel(registers, deep, left, packed_b + j * deep, at, tall, wide);
          }
        }
        if (p0 + deep == k) done(i0, high);
      }
      p0 += deep;
    } while (p0 < k);
  }

  static void with_registers(const auto& body) {
    if constexpr (pairs) body(Avx512{});
    else with_widest_registers(body);
  }

  /// Calls body(row, rows, column, columns) per tile of C [m, n].
  static void visit_tile(const Tiles& tiles, std::int64_t tile, std::int64_t m, std::int64_t n,
                         const auto& body) {
    const auto row = tile / tiles.across * tiles.rows;
    const auto column = tile % tiles.across * columns;
    body(row, std::min(tiles.rows, m - row), column, std::min(columns, n - column));
  }

  /// c [m, n] = alpha op(A) op(B) + beta c + bias. dev: its threads share the tiles; null: the calling thread has them.
  static void multiply_all(Cpu* dev, const From& a, const From& b, std::int64_t m, std::int64_t n,
                           std::int64_t k, const Target<T>& to) {
    const Tiles tiles(m, n);
    const auto one = [&](std::int64_t tile) {
      visit_tile(tiles, tile, m, n, [&](auto row, auto high, auto column, auto wide) {
        Target<T> part = to;
        part.c += row * to.stride + column;
        if (to.bias != nullptr) part.bias += column;
        with_registers(
            [&](auto registers) { multiply(registers, a, b, row, high, column, wide, k, part); });
      });
    };
    if (dev != nullptr) return dev->for_tiles(tiles.count, one);
    for (std::int64_t tile = 0; tile < tiles.count; ++tile) one(tile);
  }

  /// alpha op(A) op(B) + bias, passed row by row to store, for outputs of another type or layout. bias is null or [n].
  using Store =
      FunctionRef<void(std::int64_t row, std::int64_t column, std::int64_t count, const T* values)>;
  static void multiply_rows(Cpu& dev, const From& a, const From& b, std::int64_t m, std::int64_t n,
                            std::int64_t k, T alpha, const T* bias, Store store) {
    const bool one_group = k <= depth * (pairs ? 2 : 1);  // then its sums stay in the cache
    const Tiles tiles(m, n);
    dev.for_tiles(tiles.count, [&](std::int64_t tile) {
      visit_tile(tiles, tile, m, n, [&](auto row, auto high, auto column, auto wide) {
        const auto values = make_buffer<T>((one_group ? std::min(group, high) : high) * wide);
        const Target<T> to{values.get(), wide, alpha, T(0), bias == nullptr ? bias : bias + column};
        with_registers([&](auto registers) {
          multiply(registers, a, b, row, high, column, wide, k, to, one_group,
                   [&](std::int64_t first, std::int64_t count) {
                     for (std::int64_t i = 0; i < count; ++i)
                       store(row + first + i, column, wide,
                             values.get() + ((one_group ? 0 : first) + i) * wide);
                   });
        });
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
  const auto multiply = [&]<class E>(Tag<E>) {
    using A = cpu::Sum<E>;
    const auto [m, n, k] = gemm_size<Cpu>(b, c, options);
    const auto stride = c.shape()[1];
    const cpu::ViewSource<cpu::Loaded<E>> left{a, a.shape()[1], !options.transpose_a};
    const cpu::ViewSource<cpu::Loaded<E>> right{b, b.shape()[1], options.transpose_b};
    const A alpha = static_cast<A>(options.alpha);
    const A beta = static_cast<A>(options.beta);
    const bool converted = !bias.empty() && bias.dtype() != dtype_of<A>();
    const auto wide_bias = converted ? cpu::make_buffer<A>(n) : cpu::Buffer<A>();
    const A* const add =
        bias.empty() ? nullptr : cpu::read<A>(bias, 0, bias.count(), wide_bias.get());
    if (c.dtype() == dtype_of<A>())
      return cpu::Blocks<E>::multiply_all(&dev, left, right, m, n, k,
                                          {c.data<A>(), stride, alpha, beta, add});
    cpu::Blocks<E>::multiply_rows(
        dev, left, right, m, n, k, alpha, add,
        [=](std::int64_t row, std::int64_t column, std::int64_t count, const A* values) {
          A sums[cpu::Blocks<E>::columns];
          const auto first = row * stride + column;
          if (beta != 0) {
            (void)cpu::read<A>(c, first, count, sums);
            for (std::int64_t j = 0; j < count; ++j) sums[j] = values[j] + beta * sums[j];
          }
          cpu::write<A>(c, first, count, beta == 0 ? values : sums);
        });
  };
  if (a.dtype() == DType::bf16) cpu::visit_elements<bf16>(dev, multiply);
  else visit_accumulator(accumulation_type(a.dtype()), multiply);
}

}  // namespace dhp::detail
