// A peer of bench/kernels.cpp: products by Eigen on one thread. A source file of its own, so that
// Eigen is compiled once.
#pragma once

#include <cstdint>

namespace bench {

#ifdef DHP_HAS_EIGEN
inline constexpr bool has_eigen = true;
#else
inline constexpr bool has_eigen = false;
#endif

/// c [m, n] = op(a) op(b), dense and row-major. Does nothing without Eigen.
void eigen_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                const float* b, float* c);

}  // namespace bench
