// Converts rows of elements, to and from 16 bits by instructions if the build's target or the machine has them.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/cpu/vector.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace dhp::detail::cpu {

/// Calls one(from, to) for blocks of 8 elements. The last block may be a copy that is padded with zeros.
template <class From, class To>
void in_blocks(const From* from, To* to, std::int64_t count, const auto& one) {
  std::int64_t i = 0;
#ifndef __CUDACC__  // nvcc does not know this pragma
#pragma GCC unroll 4
#endif
  for (; i + 8 <= count; i += 8) one(from + i, to + i);
  if (i == count) return;
  From block[8] = {};
  To result[8];
  std::copy(from + i, from + count, block);
  one(block, result);
  std::copy(result, result + (count - i), to + i);
}

/// Converts to[i] = from[i], rounding to nearest even.
template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}
/// Copies a run, also a short one, without a call to memcpy, mostly by whole vectors.
template <class T>
[[gnu::always_inline]] inline void convert(const T* from, T* to, std::int64_t count) {
  constexpr std::int64_t width = 32 / sizeof(T);
  const auto block = [&](std::int64_t i) {
    std::memcpy(reinterpret_cast<std::byte*>(to + i), from + i, width * sizeof(T));
  };
  std::int64_t i = 0;
  for (; i + width <= count; i += width) block(i);
  if (i == count) return;
  if (count > width) return block(count - width);  // copies some elements twice
  for (; i < count; ++i) to[i] = from[i];
}
#if defined(__x86_64__) && defined(__F16C__) && defined(__FMA__)
// The instructions themselves read or write memory. With fewer instructions, more loads are under way at a time.
typedef float EightFloats __attribute__((vector_size(32), aligned(4), may_alias));
typedef std::uint16_t EightHalves __attribute__((vector_size(16), aligned(2), may_alias));
inline void convert(const f16* from, float* to, std::int64_t count) {
  in_blocks(from, to, count, [](const f16* of, float* into) {
    EightFloats floats;
    asm("vcvtph2ps %1, %0" : "=x"(floats) : "m"(*reinterpret_cast<const EightHalves*>(of)));
    *reinterpret_cast<EightFloats*>(into) = floats;
  });
}
inline void convert(const float* from, f16* to, std::int64_t count) {
  in_blocks(from, to, count, [](const float* of, f16* into) {
    const EightFloats& floats = *reinterpret_cast<const EightFloats*>(of);
    asm("vcvtps2ph $0, %1, %0" : "=m"(*reinterpret_cast<EightHalves*>(into)) : "x"(floats));
  });
}
/// Converts whole blocks of 16 elements. Returns the number of elements, or 0 if one of them is subnormal, because the
/// instruction treats subnormal numbers as 0.
[[nodiscard, gnu::target("avx512bf16,avx512dq")]] inline std::int64_t convert_normal_blocks(
    const float* from, bf16* to, std::int64_t count) {
  typedef float Block __attribute__((vector_size(64), aligned(4), may_alias));
  typedef std::uint16_t Halves __attribute__((vector_size(32), aligned(2), may_alias));
  unsigned subnormal = 0;
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const Block& block = *reinterpret_cast<const Block*>(from + i);
    Halves halves;
    std::uint16_t found;
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(block));
    asm("vfpclassps $0x20, %1, %0" : "=k"(found) : "v"(block));
    *reinterpret_cast<Halves*>(to + i) = halves;
    subnormal |= found;
  }
  return subnormal == 0 ? i : 0;
}
inline void convert(const float* from, bf16* to, std::int64_t count) {
  asm("" : "+r"(from));  // hides a caller's array: g++ 14 warns falsely that it is not initialized
  std::int64_t i = has_bf16_instructions() ? convert_normal_blocks(from, to, count) : 0;
  for (; i < count; ++i) to[i] = bf16(from[i]);
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
    A result[row_block];
    fill(&result[0]);
    convert(&result[0], to, count);
  }
}
/// Memory for the converted elements of a block. It lives until the end of the expression that makes it.
template <class A>
struct RowBlock {
  RowBlock() {}  // leaves the elements uninitialized
  A elements[row_block];
};
/// Calls body(first, count, values...) for each block of at most row_block columns. values: a block of each row, as A.
template <class A, class... T>
void in_row_blocks(std::int64_t columns, const auto& body, const T*... rows) {
  for (std::int64_t first = 0; first < columns; first += row_block) {
    const auto count = std::min(row_block, columns - first);
    body(first, count, widened(rows + first, count, RowBlock<A>().elements)...);
  }
}

}  // namespace dhp::detail::cpu
