// Checks that several ops share. Their argument `what` is the beginning of the error message, such as "batch_norm: dx",
// and records the line of the call.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp::detail {

/// Throws Error unless `view` has the element count and type of x.
void check_like(Located what, const auto& view, const auto& x) {
  check(view.count() == x.count() && view.dtype() == x.dtype(), what, " ", view.shape(), " of ",
        view.dtype(), " does not fit ", x.shape(), " of ", x.dtype(), "; make it like that");
}
/// Throws Error unless `vector` has one element of the accumulation type per column of x, or fewer if `padded`.
void check_columns(Located what, const auto& vector, const auto& x, bool padded = false) {
  const auto type = accumulation_type(x.dtype());
  check((padded ? vector.count() <= x.columns() : vector.count() == x.columns()) &&
            vector.dtype() == type,
        what, " ", vector.shape(), " of ", vector.dtype(), " does not fit the columns of ",
        x.shape(), " of ", x.dtype(), "; make it [", x.columns(), "] of ", type);
}
/// Throws Error unless `vector` has one element of the accumulation type per row of x.
void check_rows(Located what, const auto& vector, const auto& x) {
  const auto type = accumulation_type(x.dtype());
  check(vector.count() == x.rows() && vector.dtype() == type, what, " ", vector.shape(), " of ",
        vector.dtype(), " does not fit the rows of ", x.shape(), " of ", x.dtype(), "; make it [",
        x.rows(), "] of ", type);
}

/// Throws Error unless `one` is a single element of the given type.
void check_one(Located what, const auto& one, DType type) {
  check(one.dtype() == type && one.count() == 1, what, " ", one.shape(), " of ", one.dtype(),
        " does not fit; make it [1] of ", type);
}

/// Returns the height and width of the output of a convolution or pooling op on images x [N, H, W, C].
[[nodiscard]] std::array<std::int64_t, 2> output_extents(const char* window, const Shape& x,
                                                         const auto& geometry) {
  const auto along = [&](std::int64_t extent) {
    const auto room = extent + 2 * std::int64_t{geometry.padding} - geometry.kernel;
    check(room >= 0, window, " of ", geometry.kernel, " does not fit on ", x, " with padding ",
          geometry.padding, "; use larger images or more padding");
    return room / geometry.stride + 1;
  };
  return {along(x[1]), along(x[2])};
}

}  // namespace dhp::detail
