// Gradients of linear ops, added to old values, and refusals. nn/feed_forward.cpp checks that on the Cpu the fused ops
// have the bits of the unfused ones.
#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/linear.hpp>
#include <tests/support/tensors.hpp>

TEST_CASE("linear: gradients are added to beta times the old values") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {7, 3}, 1), dy = random_tensor<float>(dev, {7, 5}, 2);
  for (const double beta : {0.0, 1.0, 0.5}) {
    auto dw = random_tensor<float>(dev, {5, 3}, 3), dw_alone = random_tensor<float>(dev, {5, 3}, 3);
    auto db = random_tensor<float>(dev, {5}, 4), db_alone = random_tensor<float>(dev, {5}, 4);
    detail::linear_gradients(dev, dy, x, dw.mut(), db.mut(), beta);
    gemm(dev, dy, x, dw_alone.mut(), {.transpose_a = true, .beta = beta});
    column_sums(dev, dy, db_alone.mut(), beta);
    CHECK(widened(dw) == widened(dw_alone));
    CHECK(widened(db) == widened(db_alone));
  }
}

TEST_CASE("linear: operands that do not fit are refused") {
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
  CHECK(message_of(
            [&] { detail::gelu_linear_backward(dev, dy, w, x, narrow.mut(), vector.mut(), 0); }) ==
        "column_sums: [5] of f64 does not fit the columns of [4, 3] of f64; make it [3] of f64");
  CHECK(message_of([&] { detail::linear_gradients(dev, dy, x, narrow.mut(), vector.mut(), 0); }) ==
        "gemm: op(a) op(b) is [5, 3] but c is [4, 3]");
  CHECK(message_of([&] { detail::linear_gradients(dev, x, dy, wide.mut(), vector.mut(), 0); }) !=
        "no error");
}
