// Converts rows of elements to another type, with F16C instructions if the build's target has them.
#pragma once

#include <dhp/core/types.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace dhp::detail::cpu {

/// Calls one(from, to) for blocks of 8 elements. An incomplete last block is copied and padded with zeros.
template <class From, class To>
void in_blocks(const From* from, To* to, std::int64_t count, const auto& one) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) one(from + i, to + i);
  if (i == count) return;
  From last[8] = {};
  To made[8];
  std::copy(from + i, from + count, last);
  one(last, made);
  std::copy(made, made + (count - i), to + i);
}

/// Converts to[i] = from[i], rounding to nearest even.
template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}
#if defined(__x86_64__) && defined(__F16C__)
typedef float EightFloats __attribute__((vector_size(32)));
typedef std::uint16_t EightHalves __attribute__((vector_size(16)));
inline void convert(const f16* from, float* to, std::int64_t count) {
  in_blocks(from, to, count, [](const f16* of, float* into) {
    EightHalves halves;
    EightFloats floats;
    std::memcpy(&halves, of, sizeof halves);
    asm("vcvtph2ps %1, %0" : "=x"(floats) : "x"(halves));
    std::memcpy(into, &floats, sizeof floats);
  });
}
inline void convert(const float* from, f16* to, std::int64_t count) {
  in_blocks(from, to, count, [](const float* of, f16* into) {
    EightHalves halves;
    EightFloats floats;
    std::memcpy(&floats, of, sizeof floats);
    asm("vcvtps2ph $0, %1, %0" : "=x"(halves) : "x"(floats));
    std::memcpy(reinterpret_cast<std::byte*>(into), &halves, sizeof halves);
  });
}
#endif

/// Number of elements of a row that a loop converts at a time.
inline constexpr std::int64_t row_block = 256;

/// Returns `count` elements as A: `from` itself if T is A, else `block`, filled with the converted elements.
template <class A, class T>
[[nodiscard]] const A* widened(const T* from, std::int64_t count, A* block) {
  if constexpr (std::is_same_v<A, T>) return from;
  else return convert(from, block, count), block;
}
/// fill(out) writes `count` values of A, which are converted to elements of `to`. If T is not A, count <= row_block.
template <class A, class T>
void write_narrowed(T* to, std::int64_t count, const auto& fill) {
  if constexpr (std::is_same_v<A, T>) {
    fill(to);
  } else {
    A made[row_block];
    fill(&made[0]);
    convert(&made[0], to, count);
  }
}
/// Calls body(first, count) for each block of at most row_block columns.
void in_row_blocks(std::int64_t columns, const auto& body) {
  for (std::int64_t first = 0; first < columns; first += row_block)
    body(first, std::min(row_block, columns - first));
}

}  // namespace dhp::detail::cpu
