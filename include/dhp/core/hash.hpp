// fnv1a(): a hash with the same value on every machine, unlike std::hash. Not cryptographic.
#pragma once

#include <cstdint>
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

}  // namespace dhp
