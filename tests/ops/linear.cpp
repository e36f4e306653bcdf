// Fused linear ops: on the Cpu the bits of their pieces; and what they refuse.
#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/linear.hpp>
#include <tests/support/tensors.hpp>

namespace {

constexpr std::int64_t rows = 37, in = 19, out = 40;

}  // namespace

TEST_CASE_TEMPLATE("linear: the bits of the pieces", T, double, float, bf16, f16) {
  using A = Accumulator<T>;
  Cpu dev;
  const auto fresh = [&](std::int64_t columns) {
    return Tensor<Cpu>(dev, dtype_of<T>(), {rows, columns});
  };
  const auto x = random_tensor<T>(dev, {rows, in}, 1), w = random_tensor<T>(dev, {out, in}, 2);
  const auto bias = random_tensor<T>(dev, {out}, 3), dy = random_tensor<T>(dev, {rows, out}, 4);
  auto before = fresh(out), y = fresh(out), product = fresh(out), gelu = fresh(out);
  detail::linear_gelu_forward(dev, x, w, bias, before.mut(), y.mut());
  gemm(dev, x, w, product.mut(), {.transpose_b = true}, bias);
  activation_forward(dev, Activation::gelu, product, gelu.mut());
  CHECK(widened(before) == widened(product));
  CHECK(widened(y) == widened(gelu));

  for (const double beta : {0.0, 1.0, 0.5}) {
    auto dbefore = fresh(in), dproduct = fresh(in), right = fresh(in);
    auto dbias = random_tensor<A>(dev, {in}, 5), sums = random_tensor<A>(dev, {in}, 5);
    detail::gelu_linear_backward(dev, dy, w, x, dbefore.mut(), dbias.mut(), beta);
    gemm(dev, dy, w, dproduct.mut());
    activation_backward(dev, Activation::gelu, x, dproduct, right.mut());
    column_sums(dev, right, sums.mut(), beta);
    CHECK(widened(dbefore) == widened(right));
    CHECK(widened(dbias) == widened(sums));

    auto dw = random_tensor<A>(dev, {out, in}, 6), dw_alone = random_tensor<A>(dev, {out, in}, 6);
    auto db = random_tensor<A>(dev, {out}, 7), db_alone = random_tensor<A>(dev, {out}, 7);
    detail::linear_gradients(dev, dy, x, dw.mut(), db.mut(), beta);
    gemm(dev, dy, x, dw_alone.mut(), {.transpose_a = true, .beta = beta});
    column_sums(dev, dy, db_alone.mut(), beta);
    CHECK(widened(dw) == widened(dw_alone));
    CHECK(widened(db) == widened(db_alone));
  }
}

TEST_CASE("linear: what does not fit is refused") {
  Cpu dev;
  const auto f64 = [&](const Shape& shape) { return Tensor<Cpu>(dev, DType::f64, shape); };
  const auto x = f64({4, 3}), w = f64({5, 3}), bias = f64({5}), dy = f64({4, 5});
  auto y = f64({4, 5}), narrow = f64({4, 3}), wide = f64({5, 3}), vector = f64({5});
  const auto single = Tensor<Cpu>(dev, DType::f32, {5});
  CHECK(message_of([&] { detail::linear_gelu_forward(dev, x, w, bias, y.mut(), narrow.mut()); }) ==
        "linear_gelu: the result [4, 3] of f64 does not match the input of GELU, [4, 5] of f64");
  CHECK(message_of([&] { detail::linear_gelu_forward(dev, x, w, {}, y.mut(), y.mut()); }) ==
        "linear_gelu needs a bias");
  CHECK(message_of([&] { detail::linear_gelu_forward(dev, x, w, single, y.mut(), y.mut()); }) ==
        "gemm: bias needs 5 elements of f64 or f64, got [5] of f32");
  CHECK(message_of(
            [&] { detail::gelu_linear_backward(dev, dy, w, y, narrow.mut(), vector.mut(), 0); }) ==
        "gelu_linear: the gradient [4, 3] of f64 does not match the input of GELU, [4, 5] of f64");
  CHECK(message_of([&] {
          detail::gelu_linear_backward(dev, dy, w, x, narrow.mut(), vector.mut(), 0);
        }) == "column_sums: [5] of f64 does not fit the columns of [4, 3] of f64");
  CHECK(message_of([&] { detail::linear_gradients(dev, dy, x, narrow.mut(), vector.mut(), 0); }) ==
        "gemm: op(a) op(b) is [5, 3] but c is [4, 3]");
  CHECK(message_of([&] { detail::linear_gradients(dev, x, dy, wide.mut(), vector.mut(), 0); }) !=
        "no error");
}
