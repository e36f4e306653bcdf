// fnv1a(): a hash with the same value on every machine, unlike std::hash. Not cryptographic.
#pragma once

#include <dhp/core/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace dhp {

/// FNV-1a, 64 bits (Fowler, Noll, Vo).
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3;
  }
  return hash;
}

/// The same in 16 hexadecimal digits, for names of files.
[[nodiscard]] inline std::string fnv1a_text(std::string_view text) {
  std::string made(16, '0');
  auto hash = fnv1a(text);
  for (auto place = made.rbegin(); place != made.rend(); ++place, hash >>= 4)
    *place = "0123456789abcdef"[hash & 15];
  return made;
}

}  // namespace dhp
