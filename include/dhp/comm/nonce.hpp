// Nonces: random bytes of the system that nobody can foresee and that never come again, and their text.
#pragma once

#include <dhp/core/system_error.hpp>

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

namespace dhp {

/// Fresh random bytes.
[[nodiscard]] inline std::string nonce(std::size_t bytes = 16) {
  std::string made(bytes, '\0');
  for (std::size_t at = 0; at < bytes;) {
    const auto got = ::getrandom(made.data() + at, bytes - at, 0);
    if (got < 0 && errno == EINTR) continue;
    check_system(got > 0, "the system gives no random bytes");
    at += static_cast<std::size_t>(got);
  }
  return made;
}

/// Two lower-case digits a byte.
[[nodiscard]] inline std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

}  // namespace dhp
