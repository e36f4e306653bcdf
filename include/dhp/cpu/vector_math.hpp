// exp and erf for float in forms that compilers vectorise, and the library's for double, which is the oracle.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace dhp::cpu {

/// e^x. Float: range reduction by ln 2 and a polynomial of degree 5 (the coefficients of Cephes' expf),
/// relative error below 2e-7; results below 1.2e-38 are not resolved.
[[nodiscard]] inline float fast_exp(float x) {
  const float bounded = std::max(std::min(x, 88.37626f), -87.33654f);
  const float whole = std::floor(bounded * 1.44269504f + 0.5f);
  const float rest = bounded - whole * 0.693359375f + whole * 2.12194440e-4f;
  float series = 1.9875691500e-4f;
  series = series * rest + 1.3981999507e-3f;
  series = series * rest + 8.3334519073e-3f;
  series = series * rest + 4.1665795894e-2f;
  series = series * rest + 1.6666665459e-1f;
  series = series * rest + 5.0000001201e-1f;
  const float mantissa = series * rest * rest + rest + 1.0f;
  const auto exponent = static_cast<std::int32_t>(whole) + 127;
  return mantissa * std::bit_cast<float>(exponent << 23);
}
[[nodiscard]] inline double fast_exp(double x) { return std::exp(x); }

/// The error function. Float: a rational minimax approximation on [-4, 4] (odd degree 13 over even
/// degree 8), where the float result has reached +-1; error below 4e-7.
[[nodiscard]] inline float fast_erf(float value) {
  const float x = std::max(std::min(value, 4.0f), -4.0f);
  const float square = x * x;
  float above = -2.72614225801306e-10f;
  above = above * square + 2.77068142495902e-08f;
  above = above * square - 2.10102402082508e-06f;
  above = above * square - 5.69250639462346e-05f;
  above = above * square - 7.34990630326855e-04f;
  above = above * square - 2.95459980854025e-03f;
  above = above * square - 1.60960333262415e-02f;
  float below = -1.45660718464996e-05f;
  below = below * square - 2.13374055278905e-04f;
  below = below * square - 1.68282697438203e-03f;
  below = below * square - 7.37332916720468e-03f;
  below = below * square - 1.42647390514189e-02f;
  return x * above / below;
}
[[nodiscard]] inline double fast_erf(double x) { return std::erf(x); }

}  // namespace dhp::cpu
