// fnv1a(): a non-cryptographic hash that has the same value on every machine, unlike std::hash.
#pragma once

#include <dhp/core/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace dhp::detail {

/// Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo).
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3;
  }
  return hash;
}

/// Returns a number in base `base` with at least `least` digits, padded with zeros: "002a" for 42, least 4 and base 16.
[[nodiscard]] inline std::string digits_of(std::uint64_t number, std::size_t least, unsigned base) {
  std::string text;
  for (; number > 0 || text.size() < least; number /= base)
    text.insert(text.begin(), "0123456789abcdef"[number % base]);
  return text;
}

/// Returns fnv1a(text) as 16 hexadecimal digits, for file names.
[[nodiscard]] inline std::string fnv1a_text(std::string_view text) {
  return digits_of(fnv1a(text), 16, 16);
}

}  // namespace dhp::detail
