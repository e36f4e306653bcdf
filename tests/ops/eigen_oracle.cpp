// Matrix products in fp64 against Eigen's, which share no code with dhp's, at sizes of many tiles and blocks.
#include <dhp/cpu/gemm.hpp>
#include <dhp/eigen.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace tests;

namespace {

using Matrix = eigen::RowMajor<double>;

Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix product(a.rows(), b.cols());
  product.noalias() = a * b;
  return product;
}
Matrix transposed(const Matrix& a) { return a.transpose(); }

}  // namespace

TEST_CASE("gemm agrees with Eigen's product in all four forms") {
  Cpu dev({.threads = 2});
  struct Size {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Size{257, 131, 519}, Size{64, 64, 64}, Size{1, 700, 33}})
    for (int form = 0; form < 4; ++form) {
      const bool ta = (form & 1) != 0, tb = (form & 2) != 0;
      CAPTURE(form);
      CAPTURE(m);
      const auto a = random_tensor<double>(dev, ta ? Shape{k, m} : Shape{m, k}, 1);
      const auto b = random_tensor<double>(dev, tb ? Shape{n, k} : Shape{k, n}, 2);
      auto c = random_tensor<double>(dev, {m, n}, 3);
      const auto bias = random_tensor<double>(dev, {n}, 4);
      const Matrix left = eigen::rows_of<double>(a), right = eigen::rows_of<double>(b);
      Matrix expected = multiply(ta ? transposed(left) : left, tb ? transposed(right) : right);
      expected = 0.5 * expected - 1.5 * eigen::rows_of<double>(c);
      expected.rowwise() += eigen::rows_of<double>(bias).row(0);
      gemm(dev, a, b, c.mut(), {.transpose_a = ta, .transpose_b = tb, .alpha = 0.5, .beta = -1.5},
           bias);
      const Tensor<Cpu> flat = eigen::borrow(expected);
      CHECK(distance(widened(c), widened(flat), expected.cwiseAbs().maxCoeff()) < 1e-13);
    }
}
