// exp, tanh and the normal distribution for float in vectorizable form; double uses the standard
// library and is the reference. The polynomials come from Chebyshev interpolation in 40 digits.
#pragma once

#include <dhp/core/config.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace dhp::detail::cpu {

/// e^x. Float: x = n ln 2 + r, a polynomial in r, n added to the exponent. Relative error below
/// 2e-7; 0 below -87.3 (no subnormals), infinite above 88.3; NaN stays NaN.
[[nodiscard]] inline float fast_exp(float x) {
  constexpr float to_integer = 0x1.8p23f;  // adding it rounds to an integer in the low bits
  const float bounded = x < -87.3f ? -87.3f : (x > 88.3f ? 88.3f : x);
  const float shifted = bounded * 1.44269504f + to_integer;
  const float whole = shifted - to_integer;
  // ln 2 in two parts; the first has 9 bits, so its product with n is exact.
  const float rest = (bounded - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float series = 0.001392626785673201f;
  series = series * rest + 0.00836324691772461f;
  series = series * rest + 0.04166655242443085f;
  series = series * rest + 0.16666576266288757f;
  series = series * rest + 0.5f;
  const float mantissa = series * (rest * rest) + rest + 1.0f;
  const auto exponent =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(to_integer) + 127u;
  const float result = mantissa * std::bit_cast<float>(exponent << 23);
  return x < -87.3f ? 0.0f : (x > 88.3f ? HUGE_VALF : result);
}
[[nodiscard]] inline double fast_exp(double x) { return std::exp(x); }

template <class A>
[[nodiscard]] inline A sigmoid(A x) {
  return A(1) / (A(1) + fast_exp(-x));
}

/// tanh. Float: an odd polynomial near 0, else via e^(2|x|). Relative error below 4e-7.
[[nodiscard]] inline float fast_tanh(float x) {
  const float size = std::fabs(x);
  const float square = x * x;
  float series = -0.006045165006071329f;
  series = series * square + 0.020961329340934753f;
  series = series * square - 0.053843263536691666f;
  series = series * square + 0.1333271861076355f;
  series = series * square - 0.333333283662796f;
  const float near = x + x * (square * series);
  const float far = 1.0f - 2.0f / (fast_exp(2.0f * (size > 20.0f ? 20.0f : size)) + 1.0f);
  return size < 0.625f ? near : (size >= 0.625f ? std::copysign(far, x) : x);
}
[[nodiscard]] inline double fast_tanh(double x) { return std::tanh(x); }

/// The normal distribution's cumulative probability and density at x.
template <class A>
struct Gaussian {
  A below, density;
};

/// Float: the tail probability beyond |x| is e^(-x^2/2) times a polynomial in (u - 3) / (u + 3),
/// over u + 3, with u = |x| / sqrt(2) (Shepherd & Laframboise 1981). Small tails keep their digits:
/// relative error below 1e-6 for |x| < 5, else 5e-6.
[[nodiscard]] inline Gaussian<float> gaussian(float x) {
  const float u = std::fabs(x) * 0.70710678f;
  const float bell = fast_exp(-0.5f * x * x);
  const float inverse = 1.0f / (u + 3.0f);
  const float s = 1.0f - 6.0f * inverse;
  float series = -0.0001675072853686288f;
  series = series * s - 0.00025138925411738455f;
  series = series * s + 0.0015373030910268426f;
  series = series * s - 0.0006085089989937842f;
  series = series * s - 0.013417626731097698f;
  series = series * s + 0.0597638264298439f;
  series = series * s - 0.15523336827754974f;
  series = series * s + 0.2951141893863678f;
  series = series * s - 0.44169723987579346f;
  series = series * s + 0.5370034575462341f;
  const float tail = series * inverse * bell;
  return {x < 0.0f ? tail : 1.0f - tail, bell * 0.39894228f};
}
[[nodiscard]] inline Gaussian<double> gaussian(double x) {
  return {0.5 * std::erfc(x * -0.70710678118654752440),
          0.39894228040143267794 * std::exp(-0.5 * x * x)};
}

}  // namespace dhp::detail::cpu
