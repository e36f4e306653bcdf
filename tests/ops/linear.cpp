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

TEST_CASE("linear: GELU without a bias is refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {4, 3}, 1), w = random_tensor<float>(dev, {5, 3}, 2);
  Tensor<Cpu> y(dev, DType::f32, {4, 5});
  CHECK(message_of([&] { detail::linear_gelu_forward(dev, x, w, {}, y.mut(), y.mut()); }) ==
        "linear_gelu needs a bias");
}
