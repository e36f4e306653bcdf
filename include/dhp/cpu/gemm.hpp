// Implements gemm on the Cpu: multiplies packed panels for each tile of C. One thread sums each element of C in the
// order of k, so the number of threads changes no bit. Packing widens 16-bit elements to f32, or makes pairs of bf16 if
// the machine multiplies pairs.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm_pack.hpp>
#include <dhp/cpu/gemm_tiles.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp::detail::cpu {

/// Calls body(TypeTag<E>, TypeTag<T>): T is the type of the matrices, E the type in panels (see Blocks).
void visit_products(const Cpu& dev, DType type, const auto& body) {
  visit_floating(type, [&]<class T>(TypeTag<T> of) {
    if constexpr (has_pair_kernel && std::is_same_v<T, bf16>) {
      const auto products = dev.bf16_products();
      if (products == Bf16Products::tiles && has_tiles()) return body(TypeTag<TilePair>{}, of);
      if (products == Bf16Products::pairs && has_bf16_instructions())
        return body(TypeTag<Pair>{}, of);
    }
    body(TypeTag<Accumulator<T>>{}, of);
  });
}

/// Returns how many parts of a size cover `of`.
[[nodiscard]] constexpr std::int64_t parts(std::int64_t of, std::int64_t size) {
  return (of + size - 1) / size;
}

/// Returns where a row of the product is written: the offset in elements from the beginning of the output.
using Place = FunctionRef<std::int64_t(std::int64_t row)>;

/// Multiplies two Sources, A and B, by tiles of C and blocks of k. E, the type in panels, is float, double or pairs.
template <class E>
struct Blocks {
  using T = Sum<E>;
  using From = Source<Loaded<E>>;
  static constexpr bool is_tiled = Panel<E, Native>::tiles;
  static constexpr std::int64_t depth = Panel<E, Native>::depth;
  static constexpr std::int64_t group = 154;  // approximate number of rows of A packed together
  static constexpr std::int64_t max_columns = 2048 / sizeof(E);  // `depth` rows of B fit L2

  /// The output c = alpha * product + beta * c + bias. Row r of C begins at c + place(r).
  struct Output {
    T* c;
    Place place;
    T alpha;
    T beta;                   ///< if 0, c is not read
    const T* bias;            ///< one element per column, or null
    bf16* rounded = nullptr;  ///< for tiles: if not null, C is rounded and written here instead
  };

  /// Splits C [m, n] into tiles of near-equal size, which threads share. The split does not change the bits of C.
  struct Tiles {
    std::int64_t rows, columns, down, across;  ///< size of a tile; number of tiles along m and n

    /// unit: number of rows of a panel. Tiles consist of whole panels.
    Tiles(const GemmSize& size, std::int64_t threads, std::int64_t unit) {
      const auto [m, n, k] = size;
      const auto most = std::max<std::int64_t>(m / 112, 1);  // shorter tiles reload B too often
      const auto tall = is_tiled && k * std::min(n, max_columns) <= 4 << 20 ? 256 : 1120;
      down = std::max(parts(m, tall), std::min(threads == 1 ? 1 : 2 * threads, most));
      across = std::max<std::int64_t>(parts(n, max_columns), 1);
      if (down < threads)  // too few row ranges: split columns too
        across = std::max(across, std::min(parts(threads, down), parts(n, 64)));
      // Small products are not worth a second thread.
      down = std::max(down, std::min({parts(threads, across), parts(m, unit), m * n * k >> 20}));
      rows = parts(parts(m, down), unit) * unit;
      columns = parts(parts(n, across), 32) * 32;
      down = parts(m, std::max<std::int64_t>(rows, 1));
      across = parts(n, std::max<std::int64_t>(columns, 1));
    }
  };

  /// Called when rows [first, first + count) of a tile are complete.
  using Done = FunctionRef<void(std::int64_t first, std::int64_t count)>;

  /// A tile of C. packed: the tile's columns of op(B) as panels, ordered by blocks of k; null if multiply() packs them.
  struct Tile {
    std::int64_t row, rows, column, columns;
    const E* packed = nullptr;
  };
  /// The number of rows that are packed together: `group`, rounded down to whole panels.
  template <class R>
  static constexpr std::int64_t max_rows = R::rows*(group / R::rows);
  /// Returns the number of packed elements for `length` elements along k; a pair holds two.
  static std::int64_t along(std::int64_t length) {
    constexpr std::int64_t multiple = Panel<E, Native>::unit;
    return parts(length, is_pair<E> ? 2 * multiple : multiple) * multiple;
  }

  template <class R>
  static void multiply(
      R registers, const From& from_a, const From& from_b, const Tile& tile, std::int64_t length,
      const Output& to, Done done = [](auto...) {}) {
    using P = Panel<E, R>;
    [[maybe_unused]] const Prepared<R> prepared;
    const auto& [row, rows, column, columns, packed] = tile;
    const auto k = along(length);
    const auto& a = elements<E>(from_a, length);
    const auto& b = elements<E>(from_b, length);
    // One panel of A at a time is read in place, or copied, and stays in L1. Lines across k that cannot be read in
    // place are copied for several panels at once, which is faster. So are lines across k for panels of few rows, which
    // visit them so often that they must be in L1.
    const bool by_panels = a.along_k || (P::rows > 8 && a.in_place());
    const auto high_group = a.along_k ? P::rows : max_rows<R>;
    const auto most = std::min(depth, k);
    const auto across = parts(columns, P::columns), wide = across * P::columns;
    Run<E> runs[max_runs];
    const auto stride_a = parts(std::min(high_group, rows), P::rows) * P::rows;
    const auto copied = (P::tiles ? P::line : most) * stride_a;
    const bool whole = high_group <= a.piece();  // lines in pieces are copied as they are
    const auto size_a = by_panels ? P::rows * P::line : copied + (flat_lines + 1) * max_rows<R>;
    const auto buffer = make_buffer<E>(size_a + (packed == nullptr ? most * wide : 0));
    E *const packed_a = buffer.get(), *const own_b = packed_a + size_a;
    std::int64_t places[max_rows<R>], of_sums[max_rows<R>];
    // Sums that are rounded later. Their lines spread over L1, unlike those of a power of two.
    const auto line = wide + 16;
    const bool rounds = to.rounded != nullptr;
    const auto sums = make_buffer<T>(rounds && k > depth ? rows * line : 0);
    std::int64_t p0 = 0;
    do {  // one pass even if k is 0: c = beta c + bias
      const auto deep = std::min(depth, k - p0);
      if (packed == nullptr) pack_b<R>(b, column, columns, p0, deep, own_b);
      const E* const packed_b = packed == nullptr ? own_b : packed + p0 * wide;
      const auto later = p0 + deep, later_deep = std::min(depth, k - later);
      const auto steps = deep * across / Prefetcher::every;  // of step(), per row panel
      Prefetch ahead;  // the next rows of A, or the next block of k
      if (packed == nullptr)
        ahead.b = {b.block(column, columns, later, later_deep), steps * parts(rows, P::rows)};
      for (std::int64_t i0 = 0; i0 < rows; i0 += high_group) {
        const auto high = std::min(high_group, rows - i0);
        if (P::tiles && !by_panels)
          for (std::int64_t p = 0; p < deep; p += pack_width<E>)
            pack_transposed<pack_width<E>>(a, p0 + p, pack_width<E>, row + i0, high, packed_a + p,
                                           P::line, packed_a + copied);
        else if (!by_panels && whole)
          pack_flat<P::rows>(a, p0, deep, row + i0, high, packed_a, packed_a + copied);
        else if (!by_panels) a.copy(p0, deep, row + i0, high, packed_a, stride_a);
        for (std::int64_t i = 0; i < high || i % P::rows != 0; ++i) {
          const auto of =
              i0 + std::min(i, high - 1);  // rows that a panel lacks have the last row's place
          places[i] = to.place(row + of);
          of_sums[i] = of * line;
        }
        const auto below = i0 + high,
                   next = std::min(high_group, below < rows ? rows - below : rows);
        ahead.a = {below < rows ? a.block(row + below, next, p0, deep)
                                : a.block(row, next, later, later_deep),
                   steps * parts(high, P::rows)};
        for (std::int64_t i = 0; i < high; i += P::rows) {
          const int tall = static_cast<int>(std::min<std::int64_t>(P::rows, high - i));
          const E* const copy = packed_a + i * (P::tiles ? P::line : whole ? deep : 1);
          const std::int64_t apart = P::tiles ? P::line : 1;
          const std::int64_t step = P::tiles ? 1 : whole ? P::rows : stride_a;
          const Run<E> copied_run{copy, copy + P::rows / 2 * apart, apart, step, deep};
          const auto left = by_panels
                                ? runs_of_panel<R>(a, row + i0 + i, tall, p0, deep, runs, packed_a)
                                : Runs<E>{&copied_run, 1};
          for (std::int64_t j = 0; j < columns; j += P::columns) {
            const bool last = p0 + deep == k;
            const Target<T> at{(rounds ? sums.get() : to.c + column) + j,
                               (rounds ? of_sums : places) + i,
                               to.alpha,
                               p0 > 0 ? T(1) : to.beta,
                               p0 > 0 || to.bias == nullptr ? nullptr : to.bias + column + j,
                               rounds && last ? to.rounded + column + j : nullptr,
                               places + i};
            const int valid = static_cast<int>(std::min<std::int64_t>(P::columns, columns - j));
            multiply_panel(registers, left, packed_b + j * deep, at, tall, valid, ahead);
          }
        }
        if (p0 + deep == k) done(i0, high);
      }
      p0 += deep;
    } while (p0 < k);
  }
  /// Packs columns [column, column + columns) of op(B) as panels, with all threads.
  template <class R>
  static Buffer<E> pack_columns(Cpu& dev, R, const From& from, std::int64_t column,
                                std::int64_t columns, std::int64_t length) {
    constexpr std::int64_t together = 8 * Panel<E, R>::columns;
    const auto k = along(length);
    const auto& b = elements<E>(from, length);
    const auto wide = parts(columns, Panel<E, R>::columns) * Panel<E, R>::columns;
    auto packed = make_buffer<E>(k * wide);
    const auto across = parts(columns, together);
    dev.for_tiles(parts(k, depth) * across, [&](std::int64_t part) {
      const auto p0 = part / across * depth, first = part % across * together;
      const auto deep = std::min(depth, k - p0), count = std::min(together, columns - first);
      pack_b<R>(b, column + first, count, p0, deep, packed.get() + p0 * wide + first * deep);
    });
    return packed;
  }

  static void with_registers(const auto& body) {
    if constexpr (std::is_same_v<E, TilePair>) body(Tiled{});
    else if constexpr (is_pair<E>) body(Avx512{});
    else with_widest_registers(body);
  }

  /// Calls body(registers, tile) for the tiles of C [m, n]. If enough tiles share columns of B, these columns are
  /// packed only once, unless the packed columns exceed the caches.
  static void visit_tiles(Cpu& dev, const From& b, const GemmSize& size, const auto& body) {
    with_registers([&]<class R>(R registers) {
      const Tiles tiles(size, dev.threads(), R::rows);
      const auto one = [&](std::int64_t down, std::int64_t across, const E* packed) {
        const auto row = down * tiles.rows, column = across * tiles.columns;
        body(registers, Tile{row, std::min(tiles.rows, size.m - row), column,
                             std::min(tiles.columns, size.n - column), packed});
      };
      const auto bytes = along(size.k) * tiles.columns * static_cast<std::int64_t>(sizeof(E));
      if (bytes > (8 << 20) || tiles.down < std::max(dev.threads(), 2))
        return dev.for_tiles(tiles.down * tiles.across, [&](std::int64_t tile) {
          one(tile / tiles.across, tile % tiles.across, nullptr);
        });
      for (std::int64_t across = 0; across < tiles.across; ++across) {
        const auto column = across * tiles.columns;
        const auto packed = pack_columns(dev, registers, b, column,
                                         std::min(tiles.columns, size.n - column), size.k);
        dev.for_tiles(tiles.down, [&](std::int64_t down) { one(down, across, packed.get()); });
      }
    });
  }

  /// C [m, n] = alpha op(A) op(B) + beta C + bias. C has any type. Row r begins at element place(r) of c, by default
  /// where the rows of c begin.
  static void multiply_all(Cpu& dev, const From& a, const From& b, const GemmSize& size,
                           const View<Cpu>& c, T alpha = 1, T beta = 0, const T* bias = nullptr,
                           const Place* other = nullptr) {
    const auto row_of_c = [stride = c.columns()](std::int64_t row) { return row * stride; };
    const auto place = other != nullptr ? *other : Place(row_of_c);
    const auto multiply_to = [&](const Output& to) {
      visit_tiles(dev, b, size, [&](auto registers, const Tile& tile) {
        multiply(registers, a, b, tile, size.k, to);
      });
    };
    if (c.dtype() == dtype_of<T>()) return multiply_to({c.data<T>(), place, alpha, beta, bias});
    if constexpr (std::is_same_v<E, TilePair>)
      if (beta == 0) return multiply_to({nullptr, place, alpha, beta, bias, c.data<bf16>()});
    // With a single block of k, each group of rows is complete after one pass, and the next group reuses its buffer.
    const bool one_group = along(size.k) <= depth;
    visit_tiles(dev, b, size, [&]<class R>(R registers, const Tile& tile) {
      const auto held = one_group ? std::min(max_rows<R>, tile.rows) : tile.rows;
      const auto max_old = std::min(max_rows<R>, tile.rows) * tile.columns;
      const auto buffer = make_buffer<T>(max_old + held * tile.columns);
      T *const old = buffer.get(), *const values = old + max_old;
      const auto from = [&](std::int64_t row) { return (row - tile.row) % held * tile.columns; };
      const auto write_rows = [&](std::int64_t first, std::int64_t count) {
        const auto end = tile.row + first + count;
        for (auto row = tile.row + first; row < end;) {
          const auto start = from(row), at = place(row) + tile.column;
          auto length = tile.columns;  // length of neighboring rows that are converted together
          while (++row < end && from(row) == start + length &&
                 place(row) + tile.column == at + length)
            length += tile.columns;
          T* const sums = values + start;
          if (beta != 0) {
            (void)read<T>(c, at, length, old);
            for (std::int64_t j = 0; j < length; ++j) sums[j] += beta * old[j];
          }
          write<T>(c, at, length, sums);
        }
      };
      const auto place_here = [&](std::int64_t row) { return from(row) - tile.column; };
      multiply(registers, a, b, tile, size.k, {values, place_here, alpha, T(0), bias}, write_rows);
    });
  }
};

/// Computes the dense, row-major C [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C in the calling thread. The bits
/// are those of gemm(). If ta, A is stored as [k, m]; if tb, B is stored as [n, k]. If beta is 0, C is not read.
template <class E>
void serial_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                 const Loaded<E>* a, const Loaded<E>* b, double beta, Sum<E>* c) {
  using T = Sum<E>;
  const MatrixSource<Loaded<E>, Loaded<E>> left{a, ta ? m : k, !ta}, right{b, tb ? k : n, tb};
  const auto place = [n](std::int64_t row) { return row * n; };
  Blocks<E>::with_registers([&](auto registers) {
    Blocks<E>::multiply(registers, left, right, {0, m, 0, n}, k,
                        {c, place, static_cast<T>(alpha), static_cast<T>(beta), nullptr});
  });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void gemm_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> a, ConstView<Cpu> b, View<Cpu> c,
             const GemmOptions& options, ConstView<Cpu> bias) {
  cpu::visit_products(dev, a.dtype(), [&]<class E, class T>(TypeTag<E>, TypeTag<T>) {
    using A = cpu::Sum<E>;
    using Matrix = cpu::MatrixSource<cpu::Loaded<E>, T>;
    const auto size = gemm_size<Cpu>(b, c, options);
    const Matrix left{a.data<T>(), a.shape()[1], !options.transpose_a};
    const Matrix right{b.data<T>(), b.shape()[1], options.transpose_b};
    const A alpha = static_cast<A>(options.alpha);
    const A beta = static_cast<A>(options.beta);
    const auto wide_bias = cpu::make_buffer<A>(bias.count());
    const A* const add =
        bias.empty() ? nullptr : cpu::read<A>(bias, 0, bias.count(), wide_bias.get());
    cpu::Blocks<E>::multiply_all(dev, left, right, size, c, alpha, beta, add);
  });
}

}  // namespace dhp::detail
