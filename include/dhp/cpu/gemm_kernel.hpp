// The innermost loop of every matrix product on the Cpu: a panel of A times a panel of B, summed in
// vector registers. Written with the vector extensions of GCC and clang; the width is the widest that
// the compiler may use. Every element of C is summed over k in ascending order, whatever the width, so
// machines with fused multiply-add give the same bits. The scheme of packed panels is that of Goto and van de Geijn,
// "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008.
#pragma once

#include <cstdint>
#include <cstring>

namespace dhp::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int panel_rows = 14;  // 28 sums and 2 vectors of B in 32 registers
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
inline constexpr int panel_rows = 6;  // 12 sums and 2 vectors of B in 16 registers
#else
inline constexpr int vector_bytes = 16;
inline constexpr int panel_rows = 6;
#endif

template <class T>
struct Vector {
  typedef T type __attribute__((vector_size(vector_bytes)));
};

/// Extents of the panels. A: [k][row_stride], the first `rows` of a row used. B: [k][columns].
template <class T>
struct Panel {
  static constexpr int width = vector_bytes / static_cast<int>(sizeof(T));
  static constexpr int rows = panel_rows;
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

template <class T>
inline typename Vector<T>::type load_vector(const T* from) {
  typename Vector<T>::type value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// rows x columns of c, of which the first `valid_rows` and `valid_columns` are written.
template <class T, int rows>
void multiply_panels(std::int64_t depth, const T* a, const T* b, const Target<T>& to,
                     int valid_rows, int valid_columns) {
  using P = Panel<T>;
  using V = typename Vector<T>::type;
  V sums[rows][2] = {};
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) {
    __builtin_prefetch(to.c + i * to.stride, 1);
    __builtin_prefetch(to.c + i * to.stride + P::width, 1);
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    __builtin_prefetch(b + 6 * P::columns);
    __builtin_prefetch(b + 6 * P::columns + P::width);
    const V left = load_vector(b);
    const V right = load_vector(b + P::width);
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
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        if (to.beta != 0) out[half] += to.beta * load_vector(c + half * P::width);
        if (to.bias != nullptr) out[half] += load_vector(to.bias + half * P::width);
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
template <class T>
void multiply_panel(std::int64_t depth, const T* a, const T* b, const Target<T>& to, int valid_rows,
                    int valid_columns) {
  constexpr int full = Panel<T>::rows;
  constexpr int half = (full + 2) / 2;
  constexpr int quarter = half / 2;
  if (valid_rows > half) multiply_panels<T, full>(depth, a, b, to, valid_rows, valid_columns);
  else if (valid_rows > quarter)
    multiply_panels<T, half>(depth, a, b, to, valid_rows, valid_columns);
  else multiply_panels<T, quarter>(depth, a, b, to, valid_rows, valid_columns);
}

}  // namespace dhp::cpu
