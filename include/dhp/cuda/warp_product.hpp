// Matrix products of a warp on tensor cores, from tiles in shared memory: PTX's mma.m16n8k16, bf16 or f16, fp32 sums.
//
// Lane 4 g + t of the warp holds a part of each operand. A word has two elements, the first in its lower half.
//   left, 16 x 16:  words 0, 1 have columns 2 t, 2 t + 1 of rows g, g + 8; words 2, 3 columns 2 t + 8, 2 t + 9 of these
//   right, 16 x 8:  words 0, 1 have rows 2 t, 2 t + 1 and rows 2 t + 8, 2 t + 9 of column g
//   sums, 16 x 8:   numbers 0, 1 have columns 2 t, 2 t + 1 of row g; numbers 2, 3 have these columns of row g + 8
// The rounded sums of two neighboring 16 x 8 results thus are the left operand of a later product.
//
// A block has two functions for such products. All lanes of a warp must call them together.
//   load_matrices<transposes>(row)  loads four matrices of 8 x 8 elements (PTX's ldmatrix). Lane 8 i + r passes the
//       address of row r of matrix i. Word i gets elements 2 t, 2 t + 1 of row g, or of column g if it transposes.
//   multiply<T>(sums, left, first, second)  sums += left * right; first and second are the words of right.
#pragma once

#include <dhp/cuda/block.hpp>

#include <cmath>
#include <utility>

namespace dhp::detail::cuda {

using WarpWords = Pack<std::uint32_t, 4>;
/// Loads eight elements as words, because nvcc splits packs of 16-bit elements and joins them again.
[[nodiscard]] constexpr WarpWords load_words(const auto* from) {
  return *reinterpret_cast<const WarpWords*>(from);
}
constexpr void store_words(auto* to, const WarpWords& words) {
  *reinterpret_cast<WarpWords*>(to) = words;
}

/// Calls body(integral_constant<int, at>) for each at < n, because registers can only be indexed by constants.
template <int n, class Body>
constexpr void unrolled(const Body& body) {
  [&]<int... at>(std::integer_sequence<int, at...>) {
    (body(std::integral_constant<int, at>()), ...);
  }
  (std::make_integer_sequence<int, n>());
}

/// Rounds both numbers to T and returns them as one word, `first` in its lower half.
template <class T>
[[nodiscard]] constexpr std::uint32_t rounded_pair(float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return std::uint32_t{T(second).bits} << 16 | T(first).bits;
#endif
}

/// Returns 2^x with a relative error of at most 2^-22. On a GPU, subnormal results are 0.
[[nodiscard]] constexpr float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return std::exp2(x);
#endif
}

/// Rows of `width` elements in shared memory. Rows are padded by 16 bytes, so that the rows of an 8 x 8 matrix are in
/// different banks.
template <class T, int width>
struct MatrixTile {
  static constexpr int stride = width + pack_size<T>;
  T* at;

  [[nodiscard]] constexpr T* row(int index) const { return at + index * stride; }
  /// Loads a 16 x 16 square from this row and column on: a left operand or, if it transposes, two right operands.
  template <bool transposes, class B>
  [[nodiscard]] constexpr WarpWords square(B& block, int first_row, int first_column) const {
    const int lane = block.thread() % warp_size;
    return block.template load_matrices<transposes>(row(first_row + lane % 16) + first_column +
                                                    lane / 16 * 8);
  }
  /// Loads the transpose of a 16 x 16 square, as two right operands side by side.
  [[nodiscard]] constexpr WarpWords turned(auto& block, int first_row, int first_column) const {
    const int lane = block.thread() % warp_size;
    return block.template load_matrices<false>(row(first_row + lane % 8 + lane / 16 * 8) +
                                               first_column + lane / 8 % 2 * 8);
  }
};

/// A lane's part of the sums of a warp, 16 rows by 8 n columns.
template <int n>
using WarpSums = float[n][4];

/// Adds a b^T to sums[i]; a: the 16 rows of `left` from first_row + 16 i on, b: rows [0, 8 n) of `right`.
template <class B, class T, int width, int m, int n>
constexpr void multiply_rows(B& block, const MatrixTile<T, width>& left, int first_row,
                             const MatrixTile<T, width>& right, WarpSums<n> (&sums)[m]) {
  unrolled<width / 16>([&](auto step) {
    WarpWords rows[m];
    unrolled<m>([&](auto i) {
      rows[i] = left.template square<false>(block, first_row + 16 * i, 16 * step);
    });
    unrolled<n / 2>([&](auto j) {
      const auto columns = right.turned(block, 16 * j, 16 * step);
      unrolled<m>([&](auto i) {
        block.template multiply<T>(sums[i][2 * j], rows[i], columns.at[0], columns.at[1]);
        block.template multiply<T>(sums[i][2 * j + 1], rows[i], columns.at[2], columns.at[3]);
      });
    });
  });
}

/// Adds a b to sums[i]; a: left[i], rounded to T, b: the 8 n columns of `right` from first_column on.
template <class B, class T, int width, int m, int k, int n>
constexpr void multiply_sums(B& block, const WarpSums<k> (&left)[m],
                             const MatrixTile<T, width>& right, int first_column,
                             WarpSums<n> (&sums)[m]) {
  unrolled<k / 2>([&](auto step) {
    WarpWords rows[m];
    unrolled<m>([&](auto i) {
      const auto &near = left[i][2 * step], &far = left[i][2 * step + 1];
      rows[i] = {rounded_pair<T>(near[0], near[1]), rounded_pair<T>(near[2], near[3]),
                 rounded_pair<T>(far[0], far[1]), rounded_pair<T>(far[2], far[3])};
    });
    unrolled<n / 2>([&](auto j) {
      const auto columns = right.template square<true>(block, 16 * step, first_column + 16 * j);
      unrolled<m>([&](auto i) {
        block.template multiply<T>(sums[i][2 * j], rows[i], columns.at[0], columns.at[1]);
        block.template multiply<T>(sums[i][2 * j + 1], rows[i], columns.at[2], columns.at[3]);
      });
    });
  });
}

/// Stores sums in a tile, rounded to T. `upper` and `lower` are the factors of a lane's rows g and g + 8.
template <class B, class T, int width, int n>
constexpr void store_sums(const B& block, const WarpSums<n>& sums, float upper, float lower,
                          const MatrixTile<T, width>& to, int first_row, int first_column) {
  const int lane = block.thread() % warp_size;
  unrolled<n>([&](auto j) {
    T* const at = to.row(first_row + lane / 4) + first_column + 8 * j + lane % 4 * 2;
    store_rounded<T>(at, Pack<float, 2>{upper * sums[j][0], upper * sums[j][1]});
    store_rounded<T>(at + 8 * to.stride, Pack<float, 2>{lower * sums[j][2], lower * sums[j][3]});
  });
}

}  // namespace dhp::detail::cuda
