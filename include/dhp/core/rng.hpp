// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11). A number is a pure function of (seed, series, use, index), so initial weights,
// dropout masks and sample order do not depend on how a model is spread over ranks.
#pragma once

#include <dhp/core/config.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace dhp {

namespace detail {
/// Returns the 64-bit product of two 32-bit words.
[[nodiscard]] constexpr std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__  // one instruction; nvcc 13.0 would multiply 64-bit words
  if (!std::is_constant_evaluated()) {
    std::uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
  }
#endif
  return std::uint64_t{a} * b;
}

/// One Philox 4x32-10 block: 128 counter bits and a 64-bit key give 128 random bits.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                            std::array<std::uint32_t, 2> key) {
  auto x = counter[0], y = counter[1], z = counter[2], w = counter[3];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = wide_product(0xD2511F53u, x);
    const std::uint64_t b = wide_product(0xCD9E8D57u, z);
    x = static_cast<std::uint32_t>(b >> 32) ^ y ^ key[0];
    y = static_cast<std::uint32_t>(b);
    z = static_cast<std::uint32_t>(a >> 32) ^ w ^ key[1];
    w = static_cast<std::uint32_t>(a);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return {x, y, z, w};
}
}  // namespace detail

/// The random stream of one use (a dropout layer, an initial weight, a shuffle) in one series. In training, each step
/// is a series (StepContext::random). `index` numbers the elements of the global tensor, unsharded and unpacked.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint32_t series = 0, use = 0;
  /// If not null, the series is read from this address in the memory of the drawing device. A recorded step can then be
  /// replayed with the random numbers of another step.
  const std::uint32_t* series_at = nullptr;

  /// Returns four random words: the elements 4*block .. 4*block+3 of the stream.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> block(std::uint64_t block) const {
    return detail::philox(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), use, now()},
        {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }
  [[nodiscard]] constexpr std::uint32_t now() const {
    return series_at == nullptr ? series : *series_at;
  }
  /// Returns this stream with the series already read, so that the blocks of a kernel do not read it again.
  [[nodiscard]] constexpr RandomStream loaded() const {
    return {.seed = seed, .series = now(), .use = use};
  }
  [[nodiscard]] constexpr std::uint32_t bits(std::uint64_t index) const {
    return block(index / 4)[index % 4];
  }
  /// Returns a uniform number in [0, 1), a multiple of 2^-24, so that float and double have the same value.
  [[nodiscard]] constexpr double uniform(std::uint64_t index) const {
    return static_cast<double>(bits(index) >> 8) * 0x1p-24;
  }
  /// Returns 16 random bits, one half of bits(index / 2).
  [[nodiscard]] constexpr std::uint32_t short_bits(std::uint64_t index) const {
    return short_bits(block(index / 8), index % 8);
  }
  /// Returns number `at` of the eight 16-bit numbers of a block.
  [[nodiscard]] static constexpr std::uint32_t short_bits(const std::array<std::uint32_t, 4>& block,
                                                          std::size_t at) {
    return block[at / 2] >> 16 * (at % 2) & 0xffffu;
  }
  /// Returns a uniform integer in [0, bound) for bound < 2^32. The multiply-shift method has a bias below bound / 2^32.
  [[nodiscard]] constexpr std::uint32_t below(std::uint32_t bound, std::uint64_t index) const {
    return static_cast<std::uint32_t>((std::uint64_t{bits(index)} * bound) >> 32);
  }
  /// Returns a standard normal number (Box-Muller). Element `index` uses block `index`.
  [[nodiscard]] double normal(std::uint64_t index) const {
    const auto words = block(index);
    const double u = (static_cast<double>(words[0]) + 1.0) * 0x1p-32;  // (0, 1]
    const double v = static_cast<double>(words[1]) * 0x1p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }
};

/// Derives a new seed from a value, by one step of splitmix64.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace dhp
