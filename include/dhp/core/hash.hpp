// fnv1a(): a hash with the same value on every machine, unlike std::hash. Not cryptographic.
#pragma once

#include <dhp/core/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace dhp::detail {

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3;
  }
  return hash;
}

/// With leading zeros up to `least` digits: "002a" for 42, 4 and base 16.
[[nodiscard]] inline std::string digits_of(std::uint64_t number, std::size_t least, unsigned base) {
  std::string text;
  for (; number > 0 || text.size() < least; number /= base)
    text.insert(text.begin(), "0123456789abcdef"[number % base]);
  return text;
}

/// The same in 16 hexadecimal digits, for names of files.
[[nodiscard]] inline std::string fnv1a_text(std::string_view text) {
  return digits_of(fnv1a(text), 16, 16);
}

}  // namespace dhp::detail
