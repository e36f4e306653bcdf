// CRC-32C (Castagnoli; RFC 3720, appendix B.4), the checksum of checkpoints and TFRecord files. On x86-64, an SSE 4.2
// instruction computes it if the CPU has one.
#pragma once

#include <dhp/core/config.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace dhp::detail {

inline constexpr auto crc32c_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82f63b78u : 0u);
    table[byte] = value;
  }
  return table;
}();

inline std::uint32_t crc32c_bytes(std::uint32_t state, std::span<const std::byte> bytes) {
  for (const auto byte : bytes)
    state = state >> 8 ^ crc32c_table[(state ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return state;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] inline std::uint32_t crc32c_words(std::uint32_t state,
                                                            std::span<const std::byte> bytes) {
  std::uint64_t wide = state;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return static_cast<std::uint32_t>(wide);
}
#endif

/// Returns the CRC-32C of `bytes` appended to data whose CRC-32C is `before`.
[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::byte> bytes,
                                          std::uint32_t before = 0) {
  auto state = ~before;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    state = crc32c_words(state, bytes);
    bytes = bytes.subspan(bytes.size() / 8 * 8);
  }
#endif
  return ~crc32c_bytes(state, bytes);
}

/// Returns TFRecord's masked CRC: rotated and offset, because the CRC of data that contains its own CRC is weak.
[[nodiscard]] inline std::uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const auto crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace dhp::detail
