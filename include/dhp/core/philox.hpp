// Vectorized Philox of rng.hpp. Dropout needs a word per element, and a single block is a
// latency-bound chain of twenty multiplications.
#pragma once

#include <dhp/core/rng.hpp>

#include <bit>
#include <cstdint>
#include <cstring>

namespace dhp {

/// Philox counters in the lower halves of 64-bit lanes.
struct PhiloxLanes {
#if defined(__AVX2__)
  static constexpr std::size_t count = 4;
#else
  static constexpr std::size_t count = 2;
#endif
  typedef std::uint64_t type __attribute__((vector_size(8 * count)));
  static type all(std::uint64_t value) { return type{} + value; }
  /// first, first + 1, ...
  static type from(std::uint64_t first) {
#if defined(__AVX2__)
    return type{0, 1, 2, 3} + first;
#else
    return type{0, 1} + first;
#endif
  }

  /// 64-bit products of the lower halves.
  static type multiply(type a, type b) {
#if defined(__SSE2__) && !defined(__clang__)
    // GCC does not know that the upper halves are irrelevant and would multiply them too.
    typedef int Words __attribute__((vector_size(8 * count)));
    const auto left = reinterpret_cast<Words>(a);
    const auto right = reinterpret_cast<Words>(b);
#if defined(__AVX2__)
    return reinterpret_cast<type>(__builtin_ia32_pmuludq256(left, right));
#else
    return reinterpret_cast<type>(__builtin_ia32_pmuludq128(left, right));
#endif
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
  }
};

/// The words of `count` consecutive blocks, 4 each, in order.
struct PhiloxBlocks {
  static constexpr std::size_t count = 8;
  std::uint32_t words[4 * count];

  PhiloxBlocks(const RandomStream& random, std::uint64_t first) {
    using V = PhiloxLanes;
    constexpr std::size_t vectors = count / V::count;
    V::type a[vectors], b[vectors], c[vectors], d[vectors];  // the four counter words
    for (std::size_t at = 0; at < vectors; ++at) {
      a[at] = V::from(first + V::count * at);
      b[at] = a[at] >> 32;
      c[at] = V::all(random.use);
      d[at] = V::all(random.now());
    }
    auto key0 = static_cast<std::uint32_t>(random.seed);
    auto key1 = static_cast<std::uint32_t>(random.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (std::size_t at = 0; at < vectors; ++at) {
        const V::type left = V::multiply(a[at], V::all(0xD2511F53u));
        const V::type right = V::multiply(c[at], V::all(0xCD9E8D57u));
        a[at] = (right >> 32) ^ b[at] ^ V::all(key0);
        b[at] = right;
        c[at] = (left >> 32) ^ d[at] ^ V::all(key1);
        d[at] = left;
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    static_assert(std::endian::native == std::endian::little);  // words are read lower half first
    for (std::size_t at = 0; at < vectors; ++at) {
      const V::type front = (a[at] & 0xffffffffu) | (b[at] << 32);
      const V::type back = (c[at] & 0xffffffffu) | (d[at] << 32);
      for (std::size_t lane = 0; lane < V::count; ++lane) {
        const std::uint64_t block[2] = {front[lane], back[lane]};
        std::memcpy(words + 4 * (V::count * at + lane), block, sizeof block);
      }
    }
  }
};

}  // namespace dhp
