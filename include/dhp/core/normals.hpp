// Batches of standard normals in vectorizable loops, for callers that round the values to less than double precision.
#pragma once

#include <dhp/core/philox.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace dhp::detail {
/// The values of RandomStream::normal for `count` consecutive indices, each with an error of at most error * radius.
struct NormalBlock {
  static constexpr int count = 256;
  /// The maximum error divided by the radius: the series here and the standard library each err by at most 2^-50.
  static constexpr double error = 0x1p-48;
  double value[count];   ///< radius * cos(2 pi v)
  double radius[count];  ///< sqrt(-2 log(u))

  NormalBlock(const RandomStream& random, std::uint64_t first) {
    std::uint32_t u[count], v[count];
    constexpr auto together = static_cast<int>(PhiloxBlocks::count);
    for (int at = 0; at < count; at += together) {
      const PhiloxBlocks blocks(random, first + static_cast<std::uint64_t>(at));
      for (int block = 0; block < together; ++block) {
        u[at + block] = blocks.words[4 * block];
        v[at + block] = blocks.words[4 * block + 1];
      }
    }
    transform(u, v);
  }
  /// Makes normals from the given random words.
  NormalBlock(const std::uint32_t (&u)[count], const std::uint32_t (&v)[count]) { transform(u, v); }

 private:
  void transform(const std::uint32_t* u, const std::uint32_t* v) {
    for (int at = 0; at < count; ++at) radius[at] = -2.0 * log_of_fraction(u[at]);
    for (int at = 0; at < count; ++at) radius[at] = std::sqrt(radius[at]);
    for (int at = 0; at < count; ++at) value[at] = radius[at] * cos_of_turn(v[at]);
  }

  /// Converts exactly if whole < 2^52. x86 before AVX-512 has no instruction for this conversion.
  static double to_double(std::uint64_t whole) {
    return std::bit_cast<double>(whole | 0x4330000000000000u) - 0x1p52;
  }
  /// Returns log((word + 1) / 2^32), which is the exponent times log 2 plus the log of a mantissa between the square
  /// roots of 1/2 and 2. The latter is 2 atanh(s), computed as a series.
  static double log_of_fraction(std::uint32_t word) {
    const auto bits = std::bit_cast<std::uint64_t>(to_double(word) + 1.0);
    constexpr std::uint64_t root_of_half = 0x3fe6a09e667f3bcdu;
    const auto exponent = (bits - root_of_half) >> 52;
    const auto mantissa = std::bit_cast<double>(bits - (exponent << 52));
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    const double square = s * s;
    double series = 1.0 / 21;
    series = series * square + 1.0 / 19;
    series = series * square + 1.0 / 17;
    series = series * square + 1.0 / 15;
    series = series * square + 1.0 / 13;
    series = series * square + 1.0 / 11;
    series = series * square + 1.0 / 9;
    series = series * square + 1.0 / 7;
    series = series * square + 1.0 / 5;
    series = series * square + 1.0 / 3;
    constexpr double log_2 = 0.6931471805599453;
    return (to_double(exponent) - 32.0) * log_2 + (2.0 * s + 2.0 * s * (square * series));
  }
  /// Returns cos(2 pi word / 2^32), computed as the sine of the angle plus a quarter turn. Symmetry folds that angle
  /// into [-1/4, 1/4] turn, where the series of the sine is accurate. Both steps are exact.
  static double cos_of_turn(std::uint32_t word) {
    const double turned = static_cast<std::int32_t>(word + (1u << 30));
    const double size = turned < 0 ? -turned : turned;
    const double folded = size < 0x1p31 - size ? size : 0x1p31 - size;
    const double x = folded * (6.283185307179586 * 0x1p-32);
    const double square = x * x;
    double series = 1.0 / 51090942171709440000.0;  // coefficients 1 / 21! down to 1 / 3!
    series = series * square - 1.0 / 121645100408832000.0;
    series = series * square + 1.0 / 355687428096000.0;
    series = series * square - 1.0 / 1307674368000.0;
    series = series * square + 1.0 / 6227020800.0;
    series = series * square - 1.0 / 39916800.0;
    series = series * square + 1.0 / 362880.0;
    series = series * square - 1.0 / 5040.0;
    series = series * square + 1.0 / 120.0;
    series = series * square - 1.0 / 6.0;
    const double sine = x + x * (square * series);
    return turned < 0 ? -sine : sine;
  }
};
}  // namespace dhp::detail
