#include <bench/peer_eigen.hpp>

#ifdef DHP_HAS_EIGEN
#include <Eigen/Core>

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Operand = Eigen::Map<const Matrix>;

}  // namespace

void bench::eigen_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                       const float* a, const float* b, float* c) {
  const Operand left(a, ta ? k : m, ta ? m : k), right(b, tb ? n : k, tb ? k : n);
  Eigen::Map<Matrix> out(c, m, n);
  if (ta && tb) out.noalias() = left.transpose() * right.transpose();
  else if (ta) out.noalias() = left.transpose() * right;
  else if (tb) out.noalias() = left * right.transpose();
  else out.noalias() = left * right;
}
#else
void bench::eigen_gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*,
                       const float*, float*) {}
#endif
