// Converts row-major products for cuBLASLt, which is column-major: c^T = op(b)^T op(a)^T. The operands are swapped and
// keep their transpose flags.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/device/memory_count.hpp>
#include <dhp/ops/gemm.hpp>

#include <cublasLt.h>

#include <array>
#include <compare>

namespace dhp::detail::cuda {

[[nodiscard]] inline cudaDataType_t cublas_type(DType type) {
  switch (type) {
    case DType::f64: return CUDA_R_64F;
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: fail("cuBLASLt has no matrices of ", type);
  }
}

/// c = op(left) op(right), all column-major. left and right have their stored extents, before op.
struct ColumnMajorProduct {
  struct Matrix {
    std::int64_t rows = 0, columns = 0;
    std::int64_t stride = rows;  ///< the leading dimension
    friend auto operator<=>(const Matrix&, const Matrix&) = default;
  };
  bool transpose_left = false, transpose_right = false;
  Matrix left, right, c;
  friend auto operator<=>(const ColumnMajorProduct&, const ColumnMajorProduct&) = default;
};

/// Converts row-major c [m, n] = op(a) [m, k] op(b) [k, n] without padding: left is b, right is a.
[[nodiscard]] constexpr ColumnMajorProduct column_major(bool transpose_a, bool transpose_b,
                                                        std::int64_t m, std::int64_t n,
                                                        std::int64_t k) {
  return {
      .transpose_left = transpose_b,
      .transpose_right = transpose_a,
      .left = transpose_b ? ColumnMajorProduct::Matrix{k, n} : ColumnMajorProduct::Matrix{n, k},
      .right = transpose_a ? ColumnMajorProduct::Matrix{m, k} : ColumnMajorProduct::Matrix{k, m},
      .c = {n, m}};
}

/// Returns the largest product in the size class of `product`. Rounds up only an extent that is no leading dimension,
/// so that an algorithm's alignment requirements hold for the whole class. In linear layers this extent is the number
/// of rows of x in y = x w^T, dx = dy w and dw = dy^T x.
[[nodiscard]] constexpr ColumnMajorProduct class_of(ColumnMajorProduct product) {
  const auto round_up = [](ColumnMajorProduct::Matrix& matrix) {
    matrix.columns = size_class(matrix.columns, 8);
  };
  auto& [transpose_left, transpose_right, left, right, c] = product;
  if (!transpose_right) round_up(right), round_up(c);
  else if (!transpose_left) round_up(left), round_up(right);
  return product;
}

/// Returns the largest power of two, up to 256, that divides the address.
[[nodiscard]] inline std::uint32_t alignment_of(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(number & (~number + 1));
}

/// A product and its epilogue.
struct CublasCall {
  ColumnMajorProduct product;
  DType in = DType::f32, out = DType::f32;
  const std::byte* left = nullptr;
  const std::byte* right = nullptr;
  std::byte* c = nullptr;
  double alpha = 1, beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::byte* bias = nullptr;  ///< the epilogue's input or output: the bias [n], or the column sums
  DType bias_type = DType::f32;
  std::byte* aux = nullptr;  ///< the epilogue's second matrix [m, n], laid out like c
  bool tf32 = false;         ///< f32 inputs may be rounded to TF32
  std::int32_t sms = 0;      ///< multiprocessors to use (CudaOptions::cublas_sms); 0: all
};

/// Everything on which the choice of an algorithm depends.
struct CublasKey {
  ColumnMajorProduct product;
  DType in, out, bias_type;
  std::int32_t epilogue;
  bool reads_c, tf32;
  std::array<std::uint32_t, 5> alignments;

  explicit CublasKey(const CublasCall& call)
      : product(class_of(call.product)),
        in(call.in),
        out(call.out),
        bias_type(call.bias_type),
        epilogue(call.epilogue),
        reads_c(call.beta != 0),
        tf32(call.tf32),
        alignments{alignment_of(call.left), alignment_of(call.right), alignment_of(call.c),
                   alignment_of(call.bias), alignment_of(call.aux)} {}
  friend auto operator<=>(const CublasKey&, const CublasKey&) = default;

  /// Returns one line for the file of choices; "<=" marks the extent that is the class's maximum.
  [[nodiscard]] std::string text() const {
    const auto& p = product;
    const bool columns_differ = !p.transpose_right,
               depth_differs = !p.transpose_left && p.transpose_right;
    const auto padding = [](const ColumnMajorProduct::Matrix& matrix, const char* name) {
      return matrix.stride == matrix.rows ? std::string()
                                          : concat(" ", name, " by ", matrix.stride);
    };
    auto out_text =
        concat("gemm ", in, " ", out, " ", p.c.rows, columns_differ ? " <=" : " ", p.c.columns,
               depth_differs ? " <=" : " ", p.transpose_left ? p.left.rows : p.left.columns,
               p.transpose_left ? " T" : " N", p.transpose_right ? "T" : "N",
               padding(p.right, "rows"), padding(p.c, "results"), reads_c ? " reads c" : "",
               tf32 ? " TF32" : "", " epilogue ", epilogue, " ", bias_type, " at");
    for (const auto alignment : alignments) out_text += concat(" ", alignment);
    return out_text;
  }
};

}  // namespace dhp::detail::cuda
