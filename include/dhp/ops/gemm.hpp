// gemm: the product of two matrices.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

struct GemmOptions {
  bool transpose_a = false, transpose_b = false;
  double alpha = 1;
  double beta = 0;  ///< with beta 0, c is written but never read
  /// Whether rows of a and c may end in padding columns, so that each row begins at a multiple of 16 bytes for tensor
  /// cores. The padding is neither read nor written.
  bool padded = false;
};

namespace detail {
/// The extents of c [M, N] = op(a) [M, K] op(b) [K, N].
struct GemmSize {
  std::int64_t m, n, k;
};
/// Returns the extents of a product. The shapes must fit.
template <Device Dev>
[[nodiscard]] GemmSize gemm_size(InView<Dev> b, InView<Dev> c, const GemmOptions& options) {
  return {c.shape()[0], b.shape()[options.transpose_b ? 0 : 1],
          b.shape()[options.transpose_b ? 1 : 0]};
}

template <Device Dev>
void check_gemm(InView<Dev> a, InView<Dev> b, InView<Dev> c, GemmOptions options,
                InView<Dev> bias) {
  check(a.shape().rank() == 2 && b.shape().rank() == 2 && c.shape().rank() == 2,
        "gemm: a, b and c are matrices, got ", a.shape(), ", ", b.shape(), " and ", c.shape(),
        "; first view a tensor of more dims as [rows, columns]");
  const auto [m, n, k] = gemm_size<Dev>(b, c, options);
  const auto fits_columns = [&](std::int64_t given, std::int64_t wanted) {
    return options.padded ? given >= wanted : given == wanted;
  };
  const auto rows_of_a = a.shape()[0], columns_of_a = a.shape()[1];
  check(options.transpose_a ? rows_of_a == k : fits_columns(columns_of_a, k), "gemm: op(a) has ",
        options.transpose_a ? rows_of_a : columns_of_a, " columns but op(b) has ", k, " rows (a ",
        a.shape(), options.transpose_a ? " transposed" : "", ", b ", b.shape(),
        options.transpose_b ? " transposed)" : ")");
  check((options.transpose_a ? fits_columns(columns_of_a, m) : rows_of_a == m) &&
            fits_columns(c.shape()[1], n),
        "gemm: op(a) op(b) is [", options.transpose_a ? columns_of_a : rows_of_a, ", ", n,
        "] but c is ", c.shape());
  const auto fits = [&](DType type) {
    return type == a.dtype() || type == accumulation_type(a.dtype());
  };
  check(a.dtype() == b.dtype(), "gemm: a is ", a.dtype(), " and b is ", b.dtype(),
        "; both need one type");
  check(fits(c.dtype()), "gemm: a and b are ", a.dtype(), ", so c is ", a.dtype(), " or ",
        accumulation_type(a.dtype()), ", got ", c.dtype());
  check(bias.empty() || (bias.count() == n && fits(bias.dtype())), "gemm: bias needs ", n,
        " elements of ", a.dtype(), " or ", accumulation_type(a.dtype()), ", got ", bias.shape(),
        " of ", bias.dtype());
}
/// Returns whether a library of the device has computed the product.
[[nodiscard]] bool gemm_library_on(Device auto&, const auto&...) { return false; }
}  // namespace detail

/// c = alpha op(a) op(b) + beta c + bias with op(a) [M, K], op(b) [K, N], c [M, N], bias [N] or empty. a and b have one
/// type; c and bias have this type or its accumulation type (weight gradients of 16-bit layers are f32). Sums are in
/// the accumulation type and rounded once. c aliases no input. Throws Error on wrong shapes or types.
template <Device Dev>
void gemm(Dev& dev, InView<Dev> a, InView<Dev> b, OutView<Dev> c, GemmOptions options = {},
          InView<Dev> bias = {}) {
  detail::check_gemm<Dev>(a, b, c, options, bias);
  if (!gemm_library_on(dev, a, b, c, options, bias)) gemm_on(dev, a, b, c, options, bias);
}

}  // namespace dhp
