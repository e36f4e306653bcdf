// dhp's version, which the build reads from this file, and checks of the compiler. Every header includes this file
// first, so that an unmet requirement is the only error.
#pragma once

#include <cmath>  // undefines the macros isnan and isfinite of <math.h>
#include <cstddef>
#include <version>

#if __cplusplus <= 201703L  // the C++20 of g++ 10, which is refused below, has the number 201709
#error "dhp needs C++20: compile with -std=c++20"
#elif !defined __cpp_lib_source_location
#error "dhp needs std::source_location: compile with g++ 11, clang++ 16 or a later one"
#elif !defined __SIZEOF_INT128__ || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "dhp needs a 64-bit little-endian processor, such as x86-64 or aarch64"
#elif defined __FAST_MATH__ || __FINITE_MATH_ONLY__ || defined __ASSOCIATIVE_MATH__
#error "dhp needs IEEE arithmetic: leave out -ffast-math, -Ofast, -ffinite-* and -funsafe-*"
#elif !defined __cpp_exceptions
#error "dhp reports errors by exceptions: leave out -fno-exceptions"
#elif !defined __cpp_rtti
#error "dhp needs run-time types: leave out -fno-rtti"
#elif defined check
#error "#undef check, or include dhp before it: dhp has a function named as this macro"
#elif defined fail
#error "#undef fail, or include dhp before it: dhp has a function named as this macro"
#elif defined concat
#error "#undef concat, or include dhp before it: dhp has a function named as this macro"
#elif defined min
#error "#undef min, or include dhp before it: dhp has a function named as this macro"
#elif defined max
#error "#undef max, or include dhp before it: dhp has a function named as this macro"
#elif defined isnan
#error "#undef isnan, or include dhp before it: dhp has a function named as this macro"
#elif defined isfinite
#error "#undef isfinite, or include dhp before it: dhp has a function named as this macro"
#else
#define DHP_HAS_ALL
#endif
#ifndef DHP_HAS_ALL
#include <see the error above>  // ends the compilation
#endif
#undef DHP_HAS_ALL

namespace dhp {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 2;
inline constexpr int version_patch = 0;

namespace detail {
/// Base of classes that must not be copied, such as locks and files.
struct NonCopyable {
  NonCopyable() = default;
  NonCopyable(const NonCopyable&) = delete;
  NonCopyable& operator=(const NonCopyable&) = delete;
};
/// Converts a non-negative count to std::size_t.
[[nodiscard]] constexpr std::size_t as_size(auto count) { return static_cast<std::size_t>(count); }
}  // namespace detail

}  // namespace dhp
