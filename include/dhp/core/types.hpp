// Element types: the runtime tag DType, the 16-bit storage types bf16 and f16, and their
// accumulation types (double for f64, float for f32 and 16-bit types).
#pragma once

#include <dhp/core/error.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace dhp {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8 };

[[nodiscard]] constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i64: return "i64";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}
[[nodiscard]] inline std::string to_text(DType type) { return name_of(type); }

[[nodiscard]] constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_floating(DType type) {
  return type == DType::f64 || type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

/// Returns the type of gradients, statistics and losses for tensors of `type`.
[[nodiscard]] constexpr DType accumulation_type(DType type) {
  return type == DType::f64 ? DType::f64 : DType::f32;
}

namespace detail {
/// Rounds to odd, so that a second rounding to 16 bits is correct (Boldo & Melquiond 2008). An inexact result becomes
/// the neighboring float with an odd last bit; an overflow becomes the largest float, which is odd.
[[nodiscard]] constexpr float round_to_odd(double value) {
  const auto near = static_cast<float>(value);
  const double back = near;
  if (back == value || value != value) return near;
  const bool beyond = (back > value) == (value > 0);  // rounded away from zero
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(near) - (beyond ? 1u : 0u)) | 1u);
}
}  // namespace detail

/// bfloat16: the upper half of a float. Conversions round to nearest even and keep NaN a NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit constexpr bf16(float value) : bits(narrow(value)) {}
  explicit constexpr bf16(double value) : bf16(detail::round_to_odd(value)) {}
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t narrow(float value) {
#ifdef __CUDA_ARCH__  // one instruction on a GPU
    std::uint16_t half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nan = (word >> 16) | 0x40u;
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    return static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
#endif
  }
};

/// IEEE binary16 with subnormals. Values that round beyond 65504 become infinite.
struct f16 {
  std::uint16_t bits = 0;

  f16() = default;
  explicit constexpr f16(float value) : bits(narrow(value)) {}
  explicit constexpr f16(double value) : f16(detail::round_to_odd(value)) {}
  constexpr operator float() const { return widen(bits); }

 private:
  static constexpr std::uint16_t narrow(float value) {
#ifdef __CUDA_ARCH__
    std::uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    return narrow_word(std::bit_cast<std::uint32_t>(value));
#endif
  }
  // Has no branches, so that loops over rows are vectorized.
  static constexpr std::uint16_t narrow_word(std::uint32_t word) {
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    // For a subnormal result, adding 0.5 makes the float adder shift and round to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const std::uint32_t small = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    const std::uint32_t normal =
        (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;  // rebias and round
    std::uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to infinity
    half = magnitude > 0x7f800000u ? 0x7e00u : half;   // NaN
    return static_cast<std::uint16_t>(sign | half);
  }
  static constexpr float widen(std::uint16_t half) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    return widen_bits(half);
#endif
  }
  static constexpr float widen_bits(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;  // rebias, even subnormals
    const std::uint32_t finite = std::bit_cast<std::uint32_t>(scaled);
    return std::bit_cast<float>(sign |
                                (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
  }
};

template <class T>
inline constexpr bool is_16_bit = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

/// The compile-time form of accumulation_type().
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
[[nodiscard]] constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>) return DType::f16;
  else if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  else {
    static_assert(std::is_same_v<T, std::uint8_t>, "not an element type of dhp");
    return DType::u8;
  }
}

namespace detail {
/// A type T with its accumulation type A: `visit_floating(dtype, [&]<class T, class A>(Tags<T, A>) {...})`.
template <class T, class A>
struct Tags {};
}  // namespace detail
/// Carries a type into a generic lambda: `visit_floating(dtype, [&]<class T>(TypeTag<T>) {...})`.
template <class T>
struct TypeTag : detail::Tags<T, Accumulator<T>> {
  using type = T;
};

/// Calls body(TypeTag<T>{}) for a floating-point type. Throws Error for integer types.
template <class Body>
decltype(auto) visit_floating(DType type, Body&& body) {
  switch (type) {
    case DType::f64: return body(TypeTag<double>{});
    case DType::f32: return body(TypeTag<float>{});
    case DType::bf16: return body(TypeTag<bf16>{});
    case DType::f16: return body(TypeTag<f16>{});
    default: fail("expected a floating-point tensor, got ", type);
  }
}

namespace detail {
/// Calls body(TypeTag<T>{}) for an accumulation type: double or float.
template <class Body>
decltype(auto) visit_accumulator(DType type, Body&& body) {
  switch (type) {
    case DType::f64: return body(TypeTag<double>{});
    case DType::f32: return body(TypeTag<float>{});
    default: fail("expected an accumulation type (f64 or f32), got ", type);
  }
}
}  // namespace detail

/// Calls body(TypeTag<T>{}) for any element type.
template <class Body>
decltype(auto) visit_any(DType type, Body&& body) {
  switch (type) {
    case DType::i64: return body(TypeTag<std::int64_t>{});
    case DType::i32: return body(TypeTag<std::int32_t>{});
    case DType::u8: return body(TypeTag<std::uint8_t>{});
    default: return visit_floating(type, body);
  }
}

}  // namespace dhp
