// Vectorized Philox, with the same numbers as rng.hpp. Dropout needs random bits for every element, and the ten rounds
// of a single block depend on each other, so their latency would dominate.
#pragma once

#include <dhp/core/rng.hpp>

#include <cstdint>
#include <cstring>
#include <utility>

namespace dhp::detail {
/// A vector of 64-bit lanes. Philox keeps a counter word in the lower half of each lane.
struct PhiloxLanes {
#if defined(__AVX2__)
  static constexpr std::size_t count = 4;
#else
  static constexpr std::size_t count = 2;
#endif
  typedef std::uint64_t type __attribute__((vector_size(8 * count)));
  static type all(std::uint64_t value) { return type{} + value; }
  /// Returns first, first + 1, ..., one number per lane.
  static type from(std::uint64_t first) {
#if defined(__AVX2__)
    return type{0, 1, 2, 3} + first;
#else
    return type{0, 1} + first;
#endif
  }

  /// Returns the 64-bit products of the lanes' lower halves.
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

/// The random words of `count` consecutive blocks, four words per block, in order.
struct PhiloxBlocks {
  static constexpr std::size_t count = 8;
  std::uint32_t words[4 * count];

  PhiloxBlocks(const RandomStream& random, std::uint64_t first)
      : PhiloxBlocks(random, first, std::make_index_sequence<count / PhiloxLanes::count>()) {}

 private:
  using V = PhiloxLanes;

  /// at: indices of the vectors. The pack unrolls the loops, so that the vectors stay in registers even at -O2.
  template <std::size_t... at>
  PhiloxBlocks(const RandomStream& random, std::uint64_t first, std::index_sequence<at...>) {
    // The four counter words of Philox, each with one lane per block.
    V::type a[] = {V::from(first + V::count * at)...};
    V::type b[] = {(a[at] >> 32)...};
    V::type c[] = {(static_cast<void>(at), V::all(random.use))...};
    V::type d[] = {(static_cast<void>(at), V::all(random.now()))...};
    auto key0 = static_cast<std::uint32_t>(random.seed);
    auto key1 = static_cast<std::uint32_t>(random.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      (mix(a[at], b[at], c[at], d[at], key0, key1), ...);
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    (store(a[at], b[at], c[at], d[at], words + 4 * V::count * at), ...);
  }
  static void mix(V::type& a, V::type& b, V::type& c, V::type& d, std::uint32_t key0,
                  std::uint32_t key1) {
    const V::type left = V::multiply(a, V::all(0xD2511F53u));
    const V::type right = V::multiply(c, V::all(0xCD9E8D57u));
    a = (right >> 32) ^ b ^ V::all(key0);
    b = right;
    c = (left >> 32) ^ d ^ V::all(key1);
    d = left;
  }
  static void store(V::type a, V::type b, V::type c, V::type d, std::uint32_t* to) {
    const V::type front = (a & 0xffffffffu) | (b << 32);
    const V::type back = (c & 0xffffffffu) | (d << 32);
    for (std::size_t lane = 0; lane < V::count; ++lane) {
      const std::uint64_t block[2] = {front[lane], back[lane]};  // lower halves first
      std::memcpy(to + 4 * lane, block, sizeof block);
    }
  }
};
}  // namespace dhp::detail
