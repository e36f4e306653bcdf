// Another peer of bench/kernels.cpp: products by Eigen, on one thread. Defined in peer_eigen.cpp, so that
// Eigen is compiled once and by itself.
#pragma once

#include <cstdint>

namespace bench {

#ifdef DHP_HAS_EIGEN
inline constexpr bool has_eigen = true;
#else
inline constexpr bool has_eigen = false;
#endif

/// c [m, n] = op(a) op(b), all dense and row-major. Does nothing without Eigen.
void eigen_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                const float* b, float* c);

}  // namespace bench
