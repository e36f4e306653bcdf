// The innermost loop of every matrix product on the Cpu: a panel of A times a panel of B, summed in
// vector registers. Written with the vector extensions of GCC and clang. Every element of C is
// summed over k in ascending order, whatever the width of the vectors, so all machines with fused
// multiply-add give the same bits. The scheme of packed panels is that of Goto and van de Geijn,
// "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // nvcc does not know "GCC unroll", and hands it on to who does
#endif

namespace dhp::cpu {

/// What a kernel may use: bytes of a vector, and how many rows of sums (of two vectors) it keeps.
template <int vector_bytes, int panel_rows>
struct Registers {
  static constexpr int bytes = vector_bytes;
  static constexpr int rows = panel_rows;
};
using Avx512 = Registers<64, 14>;  // 28 sums and 2 vectors of B in 32 registers
#if defined(__AVX512F__)
using Native = Avx512;
#elif defined(__AVX__)
using Native = Registers<32, 6>;  // 12 sums and 2 vectors of B in 16 registers
#else
using Native = Registers<16, 6>;
#endif

template <class T, class R = Native>
struct Vector {
  typedef T type __attribute__((vector_size(R::bytes)));
};

/// Extents of the panels. A: [k][row_stride], the first `rows` of a row used. B: [k][columns].
template <class T, class R>
struct Panel {
  static constexpr int width = R::bytes / static_cast<int>(sizeof(T));
  static constexpr int rows = R::rows;
  static constexpr int row_stride = (rows + width - 1) / width * width;
  static constexpr int columns = 2 * width;
};

/// Where a product goes: c = alpha * product + beta * c + bias.
template <class T>
struct Target {
  T* c;
  std::int64_t stride;
  T alpha;
  T beta;         ///< 0: c is not read
  const T* bias;  ///< one value per column, or null
};

/// rows x columns of c, of which the first `valid_rows` and `valid_columns` are written. Always
/// inlined, so that it is compiled for the machine of the function around it.
template <class T, class R, int rows>
[[gnu::always_inline]] inline void multiply_rows_of_panel(std::int64_t depth, const T* a,
                                                          const T* b, const Target<T>& to,
                                                          int valid_rows, int valid_columns) {
  using P = Panel<T, R>;
  using V = typename Vector<T, R>::type;
  V sums[rows][2] = {};
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    __builtin_prefetch(to.c + i * to.stride, 1);
    __builtin_prefetch(to.c + i * to.stride + P::width, 1);
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    __builtin_prefetch(b + 6 * P::columns);
    __builtin_prefetch(b + 6 * P::columns + P::width);
    V left;
    V right;
    std::memcpy(&left, b, sizeof left);
    std::memcpy(&right, b + P::width, sizeof right);
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
      sums[i][0] += a[i] * left;
      sums[i][1] += a[i] * right;
    }
    a += P::row_stride;
    b += P::columns;
  }
  const bool whole = valid_columns == P::columns;
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    if (i >= valid_rows) break;
    T* c = to.c + i * to.stride;
    V out[2] = {sums[i][0] * to.alpha, sums[i][1] * to.alpha};
    if (whole) {
      V more[2];
      if (to.beta != 0) {
        std::memcpy(more, c, sizeof more);
        out[0] += to.beta * more[0];
        out[1] += to.beta * more[1];
      }
      if (to.bias != nullptr) {
        std::memcpy(more, to.bias, sizeof more);
        out[0] += more[0];
        out[1] += more[1];
      }
      std::memcpy(c, out, sizeof out);
    } else {
      T values[P::columns];
      std::memcpy(values, out, sizeof values);
      for (int j = 0; j < valid_columns; ++j) {
        if (to.beta != 0) values[j] += to.beta * c[j];
        c[j] = to.bias != nullptr ? values[j] + to.bias[j] : values[j];
      }
    }
  }
}

/// The same with the lowest kernel that holds valid_rows.
template <class T, class R>
[[gnu::always_inline]] inline void multiply_panel_inline(std::int64_t depth, const T* a, const T* b,
                                                         const Target<T>& to, int valid_rows,
                                                         int valid_columns) {
  constexpr int half = (R::rows + 2) / 2;
  constexpr int quarter = half / 2;
  if (valid_rows > half)
    multiply_rows_of_panel<T, R, R::rows>(depth, a, b, to, valid_rows, valid_columns);
  else if (valid_rows > quarter)
    multiply_rows_of_panel<T, R, half>(depth, a, b, to, valid_rows, valid_columns);
  else multiply_rows_of_panel<T, R, quarter>(depth, a, b, to, valid_rows, valid_columns);
}

template <class T>
void multiply_panel(Native, std::int64_t depth, const T* a, const T* b, const Target<T>& to,
                    int valid_rows, int valid_columns) {
  multiply_panel_inline<T, Native>(depth, a, b, to, valid_rows, valid_columns);
}

// Compiled for AVX2 (x86-64-v3), a program still uses AVX-512 where the machine has it. Code for
// older machines does not: it has no fused multiply-add, and the bits would depend on the machine.
#if defined(__x86_64__) && defined(__FMA__) && !defined(__AVX512F__)
template <class T>
[[gnu::target("avx512f")]] void multiply_panel(Avx512, std::int64_t depth, const T* a, const T* b,
                                               const Target<T>& to, int valid_rows,
                                               int valid_columns) {
  multiply_panel_inline<T, Avx512>(depth, a, b, to, valid_rows, valid_columns);
}
/// body(Registers) with the widest that this machine has.
template <class Body>
void with_widest_registers(const Body& body) {
  if (__builtin_cpu_supports("avx512f")) body(Avx512{});
  else body(Native{});
}
#else
template <class Body>
void with_widest_registers(const Body& body) {
  body(Native{});
}
#endif

}  // namespace dhp::cpu

#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif
