// Exact accumulation adds values as integers on an absolute fixed-point grid, so that neither order nor grouping
// changes a bit. Each element has two 64-bit limbs: high = rint(x 2^33), and low = the rest in units of 2^-83. Any
// communicator can sum the limbs, and ranks need not agree on a maximum first. Floats of magnitude 2^-60 or more are on
// the grid. Sums of fewer than 2^14 values, if below 2^30, are exact.
#pragma once

#include <dhp/tensor/view.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace dhp {

namespace detail {
template <Device Dev>
void check_limbs(const char* op, InView<Dev> x, InView<Dev> high, InView<Dev> low,
                 InView<Dev> flag) {
  check(high.count() == x.count() && low.count() == x.count() && high.dtype() == DType::i64 &&
            low.dtype() == DType::i64,
        op, ": the limbs of ", x.shape(), " are i64 of the same count");
  check(flag.dtype() == DType::i32 && flag.count() == 1, op, ": the flag is i32 [1], got ",
        flag.dtype(), " ", flag.shape());
}
}  // namespace detail

/// Accumulates: adds the limbs of the elements of x, f64 or f32 [n], to high and low, i64 [n]. An element that is not
/// finite or has magnitude >= 2^18 is skipped, and flag, i32 [1], becomes 1.
template <Device Dev>
void exact_accumulate(Dev& dev, InView<Dev> x, OutView<Dev> high, OutView<Dev> low,
                      OutView<Dev> flag) {
  detail::check_limbs<Dev>("exact_accumulate", x, high, low, flag);
  exact_accumulate_on(dev, x, high, low, flag);
}

/// Finalizes: x [n] = the sum of the limbs high and low, i64 [n], rounded once, or NaN if flag, i32 [1], is not 0.
template <Device Dev>
void exact_finalize(Dev& dev, InView<Dev> high, InView<Dev> low, InView<Dev> flag, OutView<Dev> x) {
  detail::check_limbs<Dev>("exact_finalize", x, high, low, flag);
  exact_finalize_on(dev, high, low, flag, x);
}

// The arithmetic of one element, shared by all devices.

namespace detail {
__extension__ using Int128 = __int128;  ///< a type of g++, clang++ and nvcc

/// Adding this converts between int64 and doubles with integer values below 2^51. It vectorizes even on instruction
/// sets without such a conversion.
inline constexpr double integer_shift = 0x1.8p52;
/// Returns value as an integer, for shifted = value + integer_shift.
[[nodiscard]] constexpr std::int64_t to_integer(double shifted) {
  return std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(integer_shift);
}
[[nodiscard]] constexpr double to_double(std::int64_t value) {
  return std::bit_cast<double>(value + std::bit_cast<std::int64_t>(integer_shift)) - integer_shift;
}

/// Returns a + b, wrapped on overflow. Partial sums may wrap without harm.
[[nodiscard]] constexpr std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

/// Returns the bits of |value|. Values that cannot be accumulated, such as NaN and infinity, give at least exact_limit.
[[nodiscard]] constexpr std::int64_t magnitude_bits(double value) {
  return std::bit_cast<std::int64_t>(value) & std::int64_t{0x7fffffffffffffff};
}
inline constexpr auto exact_limit = std::bit_cast<std::int64_t>(0x1p18);

/// Adds the limbs of value to high and low. |value| must be below 2^18.
constexpr void accumulate_limbs(double value, std::int64_t& high, std::int64_t& low) {
  const double whole = value * 0x1p33 + integer_shift;            // rounds to nearest
  const double rest = value - (whole - integer_shift) * 0x1p-33;  // exact
  high = wrapping_sum(high, to_integer(whole));
  low = wrapping_sum(low, to_integer(rest * 0x1p83 + integer_shift));
}

/// Returns true if finalize_small() accepts the limb.
[[nodiscard]] constexpr bool is_small_limb(std::int64_t limb) {
  constexpr std::int64_t bound = std::int64_t{1} << 51;
  return limb < bound && limb > -bound;
}
/// Returns high 2^-33 + low 2^-83, rounded once to T, for limbs of magnitude below 2^51.
template <class T>
[[nodiscard]] constexpr T finalize_small(std::int64_t high, std::int64_t low) {
  const double a = to_double(high) * 0x1p-33;
  const double b = to_double(low) * 0x1p-83;
  const double sum = a + b;
  if constexpr (std::is_same_v<T, double>) {
    return sum;
  } else {
    // Rounding to odd first (Boldo & Melquiond 2008) makes the second rounding correct.
    const double from_b = sum - a;
    const double lost = (a - (sum - from_b)) + (b - from_b);
    const auto bits = std::bit_cast<std::int64_t>(sum);
    const std::int64_t step = (lost > 0) == (sum > 0) ? 1 : -1;
    const bool inexact_even = lost != 0 && (bits & 1) == 0;
    return static_cast<T>(std::bit_cast<double>(inexact_even ? bits + step : bits));
  }
}
/// Returns the same as finalize_small() for any limbs, computed in 128 bits.
template <class T>
[[nodiscard]] constexpr T finalize_large(std::int64_t high, std::int64_t low) {
  return static_cast<T>(static_cast<Int128>(high) * (Int128{1} << 50) + low) *
         static_cast<T>(0x1p-83);
}
}  // namespace detail

}  // namespace dhp
