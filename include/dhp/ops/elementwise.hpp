// Elementwise ops: fill, add, axpy, scale, cast, rsqrt. Floating-point types may differ unless stated otherwise.
// Arithmetic is in y's accumulation type, or in double if needed. [..] is any shape; an op's tensors have equal counts.
#pragma once

#include <dhp/ops/checks.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp {

/// y [..] = value.
template <Device Dev>
void fill(Dev& dev, OutView<Dev> y, double value) {
  fill_on(dev, y, value);
}

/// y [..] = a [..] + b [..]; y may be a or b.
template <Device Dev>
void add(Dev& dev, InView<Dev> a, InView<Dev> b, OutView<Dev> y) {
  check(a.count() == y.count() && b.count() == y.count(), "add: ", a.shape(), " + ", b.shape(),
        " does not fit ", y.shape());
  add_on(dev, a, b, y);
}

/// y [..] += alpha * x [..].
template <Device Dev>
void axpy(Dev& dev, double alpha, InView<Dev> x, OutView<Dev> y) {
  check(x.count() == y.count(), "axpy: ", x.shape(), " does not fit ", y.shape());
  axpy_on(dev, alpha, x, y);
}

namespace detail {
/// Describes the addition of factor * `from` to `to`, two vectors of one type and count.
template <class Dev>
struct AddedVector {
  double factor;
  ConstView<Dev> from;
  View<Dev> to;
};
/// For both pairs: to [n] = beta * to + factor * from [n]. With beta 0, `to` is not read. One launch for short vectors.
template <Device Dev>
void add_both(Dev& dev, const AddedVector<Dev>& one, const AddedVector<Dev>& other, double beta) {
  for (const auto* const each : {&one, &other})
    check(each->from.count() == each->to.count() && each->from.dtype() == one.to.dtype() &&
              each->to.dtype() == one.to.dtype(),
          "add_both: ", each->from.shape(), " of ", each->from.dtype(), " does not fit ",
          each->to.shape(), " of ", each->to.dtype());
  add_both_on(dev, one, other, beta);
}
}  // namespace detail

/// y [..] *= alpha * factor. factor is f64 [1] on the device, or empty, which stands for 1.
template <Device Dev>
void scale(Dev& dev, double alpha, OutView<Dev> y, InView<Dev> factor = {}) {
  if (!factor.empty()) detail::check_one("scale: the factor", factor, DType::f64);
  scale_on(dev, alpha, factor, y);
}

/// y [..] = x [..], rounded to y's type.
template <Device Dev>
void cast(Dev& dev, InView<Dev> x, OutView<Dev> y) {
  check(x.count() == y.count(), "cast: ", x.shape(), " does not fit ", y.shape());
  cast_on(dev, x, y);
}

namespace detail {
/// Returns a copy of x in its accumulation type, or an empty tensor if x has this type already.
template <class Dev>
[[nodiscard]] Tensor<Dev> wide_copy(Dev& dev, ConstView<Dev> x) {
  if (x.dtype() == accumulation_type(x.dtype())) return {};
  Tensor<Dev> wide(dev, accumulation_type(x.dtype()), x.shape());
  cast(dev, x, wide.mut());
  return wide;
}
/// Memory for summing the parts of y in its accumulation type: y itself, or a temporary that end() rounds into y.
template <class Dev>
struct WideSum {
  WideSum(Dev& dev, View<Dev> y) : view(y) {
    if (const auto type = accumulation_type(y.dtype()); type != y.dtype())
      view = (wide = Tensor<Dev>(dev, type, y.shape())).mut();
  }
  void end(Dev& dev, View<Dev> y) {
    if (wide) cast(dev, wide.view(), y);
  }
  Tensor<Dev> wide{};
  View<Dev> view;
};
}  // namespace detail

/// y [..] = 1 / sqrt(x [..] + epsilon). x and y have one type.
template <Device Dev>
void rsqrt(Dev& dev, InView<Dev> x, double epsilon, OutView<Dev> y) {
  detail::check_like("rsqrt: y", y, x);
  rsqrt_on(dev, x, epsilon, y);
}

}  // namespace dhp
