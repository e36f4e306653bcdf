// Products by Eigen on one thread, as a peer of bench/kernels.cpp. They have their own source file, so that Eigen is
// compiled once.
#pragma once

#include <cstdint>

namespace bench {

#ifdef DHP_HAS_EIGEN
inline constexpr bool has_eigen = true;
#else
inline constexpr bool has_eigen = false;
#endif

/// c [m, n] = op(a) op(b), dense and row-major. Does nothing if Eigen is missing.
void eigen_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                const float* b, float* c);

}  // namespace bench
