// Computes exp, tanh and the normal distribution, with the same bits for floats and for vectors of floats. The versions
// for double use the standard library. The polynomials come from Chebyshev interpolation in 40 digits.
#pragma once

#include <dhp/cpu/vector.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace dhp::detail::cpu {

template <class V>
struct BitsOfFloats {
  typedef std::uint32_t type __attribute__((vector_size(sizeof(V))));
};
template <>
struct BitsOfFloats<float> {
  using type = std::uint32_t;
};
/// Returns the bits of a float, or of each float in a vector.
template <class V>
[[nodiscard]] auto bits_of(V x) {
  return std::bit_cast<typename BitsOfFloats<V>::type>(x);
}
template <class V>
[[nodiscard]] V magnitude(V x) {
  return std::bit_cast<V>(bits_of(x) & 0x7fffffffu);
}

/// Returns e^x. For float, x = n ln 2 + r; a polynomial gives e^r, and n is added to the exponent. The relative error
/// is below 2e-7. The result is 0 for x < -87.3 (no subnormals), infinite for x > 88.3, and NaN for NaN.
template <class V>
[[nodiscard]] V fast_exp(V x) {
  constexpr float to_integer = 0x1.8p23f;  // adding this rounds to an integer in the low bits
  const auto low = x<-87.3f, high = x> 88.3f;
  const V below = high ? V{} + 88.3f : x;
  const V bounded = low ? V{} - 87.3f : below;
  const V shifted = bounded * 1.44269504f + to_integer;
  const V whole = shifted - to_integer;
  // ln 2 is split in two parts. The first part has 9 bits, so that its product with n is exact.
  const V rest = (bounded - whole * 0.693359375f) - whole * -2.12194440e-4f;
  V series = rest * 0.001392626785673201f + 0.00836324691772461f;
  series = series * rest + 0.04166655242443085f;
  series = series * rest + 0.16666576266288757f;
  series = series * rest + 0.5f;
  const V mantissa = series * (rest * rest) + rest + 1.0f;
  const auto exponent = bits_of(shifted) - bits_of(to_integer) + 127u;
  const V result = mantissa * std::bit_cast<V>(exponent << 23);
  const V above = high ? V{} + HUGE_VALF : result;
  return low ? V{} : above;
}
[[nodiscard]] inline double fast_exp(double x) { return std::exp(x); }

template <class V>
[[nodiscard]] V sigmoid(V x) {
  return 1.0f / (1.0f + fast_exp(-x));
}

/// Returns tanh(x). For float, uses an odd polynomial near 0, else e^(2|x|). The relative error is below 4e-7.
template <class V>
[[nodiscard]] V fast_tanh(V x) {
  const V size = magnitude(x), square = x * x;
  V series = square * -0.006045165006071329f + 0.020961329340934753f;
  series = series * square - 0.053843263536691666f;
  series = series * square + 0.1333271861076355f;
  series = series * square - 0.333333283662796f;
  const V near = x + x * (square * series);
  const V bounded = size > 20.0f ? V{} + 20.0f : size;
  const V far = 1.0f - 2.0f / (fast_exp(2.0f * bounded) + 1.0f);
  const V with_sign = std::bit_cast<V>(bits_of(far) | (bits_of(x) & 0x80000000u));
  const V other = size >= 0.625f ? with_sign : x;  // NaN stays NaN
  return size < 0.625f ? near : other;
}
[[nodiscard]] inline double fast_tanh(double x) { return std::tanh(x); }

/// The standard normal distribution at x: the cumulative probability `below`, and the density.
template <class A>
struct Gaussian {
  A below, density;
};

/// For float, the tail probability beyond |x| is e^(-x^2/2) times a polynomial in (u - 3) / (u + 3), divided by u + 3,
/// where u = |x| / sqrt(2) (Shepherd & Laframboise 1981). Small tails keep their digits: the relative error is below
/// 1e-6 for |x| < 5, else below 5e-6.
template <class V>
[[nodiscard]] Gaussian<V> gaussian(V x) {
  const V u = magnitude(x) * 0.70710678f;
  const V bell = fast_exp(-0.5f * x * x);
  const V inverse = 1.0f / (u + 3.0f);
  const V s = 1.0f - 6.0f * inverse;
  V series = s * -0.0001675072853686288f - 0.00025138925411738455f;
  series = series * s + 0.0015373030910268426f;
  series = series * s - 0.0006085089989937842f;
  series = series * s - 0.013417626731097698f;
  series = series * s + 0.0597638264298439f;
  series = series * s - 0.15523336827754974f;
  series = series * s + 0.2951141893863678f;
  series = series * s - 0.44169723987579346f;
  series = series * s + 0.5370034575462341f;
  const V tail = series * inverse * bell;
  const V rest = 1.0f - tail;
  return {x < 0.0f ? tail : rest, bell * 0.39894228f};
}
[[nodiscard]] inline Gaussian<double> gaussian(double x) {
  return {0.5 * std::erfc(x * -0.70710678118654752440),
          0.39894228040143267794 * std::exp(-0.5 * x * x)};
}

}  // namespace dhp::detail::cpu
