// The gemm microkernel multiplies panels of A and B in vector registers (Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication", ACM TOMS 34(3), 2008), with the vector extensions of GCC and clang. It sums
// over k in ascending order for every vector width, so all machines with fused multiply-add give the same bits.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/cpu/gemm_prefetch.hpp>
#include <dhp/cpu/vector.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#ifdef __CUDACC__
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // nvcc warns of "GCC unroll", but the host compiler obeys it
#endif

namespace dhp::detail::cpu {

/// Register blocking: the bytes of a vector, and the rows of a panel. Each row has two vectors of accumulators.
template <int vector_bytes, int panel_rows>
struct Registers {
  static constexpr int bytes = vector_bytes;
  static constexpr int rows = panel_rows;
};
using Avx512 = Registers<64, 14>;  // 28 accumulators and 2 vectors of B fit 32 registers
#if defined(__AVX512F__)
using Native = Avx512;
#elif defined(__aarch64__)
using Native = Registers<16, 8>;  // 16 accumulators, 2 vectors of B, elements of A: 32 registers
#else
using Native = Registers<vector_bytes, 6>;  // 12 accumulators and 2 vectors of B: 16 registers
#endif

/// Two neighboring elements along k. Panels of bf16 hold pairs if the machine multiplies pairs.
template <bool swapped>
struct PairOf {
  bf16 first, second;
};
using Pair = PairOf<true>;  ///< of AVX512_BF16: in panels, the upper 16 bits hold the first element
using TilePair = PairOf<false>;  ///< of AMX, as in memory
template <class E>
inline constexpr bool is_pair = std::is_same_v<E, Pair> || std::is_same_v<E, TilePair>;
/// The type in which products of E are summed.
template <class E>
using Sum = std::conditional_t<is_pair<E>, float, E>;
/// The element type of the sources that panels of E are packed from.
template <class E>
using Loaded = std::conditional_t<is_pair<E>, bf16, E>;

template <class T, class R = Native>
struct Vector {
  typedef T type __attribute__((vector_size(R::bytes)));
};
template <bool swapped, class R>
struct Vector<PairOf<swapped>, R> {
  typedef std::uint32_t type __attribute__((vector_size(R::bytes)));
};

/// The layout of panels, which cover at most `depth` elements along k. A panel of B is [k][columns]. A panel of A is a
/// list of Runs; copied lines along k begin `line` elements apart. For tiles, the runs of A have their elements next to
/// each other, and all lengths along k are multiples of `unit`.
template <class T, class R>
struct Panel {
  static constexpr int width = R::bytes / static_cast<int>(sizeof(T));
  static constexpr int rows = R::rows;
  static constexpr bool tiles = std::is_same_v<T, TilePair>;
  static constexpr int unit = tiles ? 16 : 1;
  static constexpr int depth = is_pair<T> && !tiles ? 128 : 256;  // a panel of A fits L1
  // Lines are one cache line longer than depth, so that they do not compete for the same cache sets.
  static constexpr int line = depth + 64 / static_cast<int>(sizeof(T));
  static constexpr int columns = 2 * width;
};

/// A range along k of a panel of A. `upper` points to the first half of its rows and `lower` to the second.
template <class T>
struct Run {
  const T* upper;
  const T* lower;
  std::int64_t stride;  ///< distance of the rows of a half
  std::int64_t step;    ///< distance of elements along k
  std::int64_t length;  ///< number of elements along k
};

/// The runs of a panel, in ascending order along k.
template <class T>
using Runs = std::span<const Run<T>>;

/// The output of a panel product: c = alpha * product + beta * c + bias.
template <class T>
struct Target {
  T* c;
  const std::int64_t* rows;  ///< offset of each row in c; for rows that the panel lacks, of any row
  T alpha;
  T beta;                   ///< if 0, c is not read
  const T* bias;            ///< one element per column, or null
  bf16* rounded = nullptr;  ///< not null: the result is rounded and written here instead of c
  const std::int64_t* places = nullptr;  ///< offset of each row in `rounded`
};

/// Prevents compilers from fusing a product into a later sum: otherwise, the bits would depend on inlining.
[[gnu::always_inline]] inline void keep_product([[maybe_unused]] auto& value) {
#if defined(__clang__)  // clang fuses only within an expression
#elif defined(__x86_64__)
  asm("" : "+v"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#else
  asm("" : "+m"(value));
#endif
}

/// Writes columns [column, column + count), fewer than a vector has. sums: `width` elements times alpha for each row.
template <int width, class T>
[[gnu::noinline]] void store_tail(T* sums, const Target<T>& to, int rows, int column, int count) {
  for (int i = 0; i < rows; ++i, sums += width)
    for (int j = 0; j < count; ++j) {
      T* const c = to.c + to.rows[i] + column + j;
      if (to.beta != 0) sums[j] += to.beta * *c;
      if (to.bias != nullptr) sums[j] += to.bias[column + j];
      *c = sums[j];
    }
}

/// Writes one of the two vectors of each row of c. Inlined, so that the caller's target attribute applies.
template <int half, class T, class R, int rows>
[[gnu::always_inline]] inline void store_half(typename Vector<T, R>::type (&sums)[as_size(rows)][2],
                                              const Target<T>& to, int valid_rows,
                                              int valid_columns) {
  constexpr int width = Panel<T, R>::width, column = half * width;
  if (column >= valid_columns) return;
  if (to.alpha != 1) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      sums[i][half] *= to.alpha;
      keep_product(sums[i][half]);
    }
  }
  if (column + width > valid_columns) {
    T tail[as_size(rows * width)];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
      std::memcpy(tail + i * width, &sums[i][half], sizeof sums[i][half]);
    return store_tail<width>(tail, to, valid_rows, column, valid_columns - column);
  }
  T* const c = to.c + column;
  const std::int64_t* const places = to.rows;
  typename Vector<T, R>::type more;
  if (const T beta = to.beta; beta != 0) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {  // rows that are not valid have the place of a valid one
      std::memcpy(&more, c + places[i], sizeof more);
      sums[i][half] += beta * more;
    }
  }
  if (to.bias != nullptr) {
    std::memcpy(&more, to.bias + column, sizeof more);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) sums[i][half] += more;
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i)
    if (i < valid_rows) std::memcpy(c + places[i], &sums[i][half], sizeof more);
}

/// The state of a kernel while it multiplies the runs of a panel of A with a panel of B, whose next line is at b.
template <class T, class R, int rows>
struct Running {
  using V = typename Vector<T, R>::type;
  typename Vector<Sum<T>, R>::type sums[as_size(rows)][2];
  const T* b;
  Prefetch& ahead;
  int prefetched = 0;

  /// Clears the sums in registers. `sums = {}` would make g++ clear them in memory, which costs up to a sixth of a
  /// short panel's time.
  [[gnu::always_inline]] Running(const T* panel, Prefetch& prefetches)
      : b(panel), ahead(prefetches) {
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) sums[i][0] = sums[i][1] = typename Vector<Sum<T>, R>::type{};
  }
  /// Loads the two vectors of B for a step along k, and prefetches those of six steps later. left: steps left in the
  /// run.
  [[gnu::always_inline]] void next(V& first, V& second, const Target<Sum<T>>& to,
                                   std::int64_t left) {
    constexpr int width = Panel<T, R>::width, line = 2 * width;
    __builtin_prefetch(b + 6 * line);
    __builtin_prefetch(b + 6 * line + width);
    std::memcpy(&first, b, sizeof first);
    std::memcpy(&second, b + width, sizeof second);
    b += line;
    if (left % Prefetcher::every != 0) return;
    ahead.step();
    if (prefetched == rows) return;
    __builtin_prefetch(to.c + to.rows[prefetched], 1);
    __builtin_prefetch(to.c + to.rows[prefetched++] + width, 1);
  }
};
/// Returns the address of row i of a panel at the present step along k.
template <int half, class T>
[[gnu::always_inline]] inline const T* row_of(const T* upper, const T* lower, std::int64_t stride,
                                              int i) {
  return i < half ? upper + i * stride : lower + (i - half) * stride;
}

template <class T, class R, int rows>
[[gnu::always_inline]] inline void multiply_rows_of_panel(Runs<T> a, const T* b,
                                                          const Target<T>& to, int valid_rows,
                                                          int valid_columns, Prefetch& ahead) {
  Running<T, R, rows> now(b, ahead);
  for (auto [upper, lower, stride, step, length] : a) {
    for (; length > 0; --length) {
      typename Vector<T, R>::type left, right;
      now.next(left, right, to, length);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        const T one = *row_of<R::rows / 2>(upper, lower, stride, i);
        now.sums[i][0] += one * left;
        now.sums[i][1] += one * right;
      }
      upper += step;
      lower += step;
    }
  }
  store_half<0, T, R, rows>(now.sums, to, valid_rows, valid_columns);
  store_half<1, T, R, rows>(now.sums, to, valid_rows, valid_columns);
}

/// Calls the smallest kernel that has at least valid_rows rows. f64 has one kernel only, which compiles faster.
template <class T, class R>
[[gnu::always_inline]] inline void multiply_panel_inline(Runs<T> a, const T* b, const Target<T>& to,
                                                         int valid_rows, int valid_columns,
                                                         Prefetch& ahead) {
  constexpr int half = (R::rows + 2) / 2;
  constexpr int quarter = half / 2;
  if constexpr (std::is_same_v<T, float>) {
    if (valid_rows <= quarter)
      return multiply_rows_of_panel<T, R, quarter>(a, b, to, valid_rows, valid_columns, ahead);
    if (valid_rows <= half)
      return multiply_rows_of_panel<T, R, half>(a, b, to, valid_rows, valid_columns, ahead);
  }
  multiply_rows_of_panel<T, R, R::rows>(a, b, to, valid_rows, valid_columns, ahead);
}

template <class T>
#ifdef __clang__
[[clang::min_vector_width(512)]]  // else it takes two vectors of 256 bits where the target has AVX-512
#endif
void multiply_panel(Native, Runs<T> a, const T* b, const Target<T>& to, int valid_rows,
                    int valid_columns, Prefetch& ahead) {
  multiply_panel_inline<T, Native>(a, b, to, valid_rows, valid_columns, ahead);
}

// Builds for AVX2 (x86-64-v3) select AVX-512 at run time if the machine has it. Builds for older targets do not: they
// have no fused multiply-add, so their bits would depend on the machine.
#if defined(__x86_64__) && defined(__FMA__) && !defined(__AVX512F__)
template <class T>
[[gnu::target("avx512f")]] void multiply_panel(Avx512, Runs<T> a, const T* b, const Target<T>& to,
                                               int valid_rows, int valid_columns, Prefetch& ahead) {
  multiply_panel_inline<T, Avx512>(a, b, to, valid_rows, valid_columns, ahead);
}
/// Calls body with the Registers of the widest vectors that this machine has.
void with_widest_registers(const auto& body) {
  if (__builtin_cpu_supports("avx512f")) body(Avx512{});
  else body(Native{});
}
#else
void with_widest_registers(const auto& body) { body(Native{}); }
#endif

// vdpbf16ps adds the product of the upper halves, then the product of the lower halves, and rounds to float each time.
// Products of bf16 are exact in float. So sums have the bits of fused multiply-adds, except that subnormals count as 0.
#if defined(__x86_64__) && defined(__FMA__)
inline constexpr bool has_pair_kernel = true;

template <int rows>
[[gnu::target("avx512bf16"), gnu::always_inline]] inline void multiply_rows_of_pairs(
    Runs<Pair> a, const Pair* b, const Target<float>& to, int valid_rows, int valid_columns,
    Prefetch& ahead) {
  using V = typename Vector<Pair, Avx512>::type;
  Running<Pair, Avx512, rows> now(b, ahead);
  for (auto [upper, lower, stride, step, length] : a) {
    for (; length > 0; --length) {
      V left, right;
      now.next(left, right, to, length);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        const auto pair = *row_of<Avx512::rows / 2>(upper, lower, stride, i);
        const V all = std::bit_cast<std::uint32_t>(pair) - V{};
        asm("vdpbf16ps %2, %1, %0" : "+v"(now.sums[i][0]) : "v"(all), "v"(left));
        asm("vdpbf16ps %2, %1, %0" : "+v"(now.sums[i][1]) : "v"(all), "v"(right));
      }
      upper += step;
      lower += step;
    }
  }
  store_half<0, float, Avx512, rows>(now.sums, to, valid_rows, valid_columns);
  store_half<1, float, Avx512, rows>(now.sums, to, valid_rows, valid_columns);
}
[[gnu::target("avx512bf16")]] inline void multiply_panel(Avx512, Runs<Pair> a, const Pair* b,
                                                         const Target<float>& to, int valid_rows,
                                                         int valid_columns, Prefetch& ahead) {
  if (valid_rows > 8) multiply_rows_of_pairs<14>(a, b, to, valid_rows, valid_columns, ahead);
  else if (valid_rows > 4) multiply_rows_of_pairs<8>(a, b, to, valid_rows, valid_columns, ahead);
  else multiply_rows_of_pairs<4>(a, b, to, valid_rows, valid_columns, ahead);
}
#else
inline constexpr bool has_pair_kernel = false;
#endif

}  // namespace dhp::detail::cpu

#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif
