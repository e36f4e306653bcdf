// HMAC-SHA256 (RFC 2104) by OpenSSL's libcrypto, and nonces: random bytes of the system that are used once.
#pragma once

#include <dhp/core/system_error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

namespace dhp::comm {

inline constexpr std::size_t hmac_bytes = 32;

/// The tag of a message, hmac_bytes long. Key and message are any bytes, the key may be empty.
[[nodiscard]] inline std::string hmac_sha256(std::string_view key, std::string_view message) {
  constexpr char empty[] = "";
  const auto* const key_data = key.empty() ? empty : key.data();
  std::string tag(hmac_bytes, '\0');
  std::size_t written = 0;
  const auto* const made =
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key_data, key.size(),
                reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                reinterpret_cast<unsigned char*>(tag.data()), tag.size(), &written);
  check(made != nullptr && written == hmac_bytes,
        "OpenSSL cannot make an HMAC-SHA256; does its configuration leave SHA-256 out?");
  return tag;
}

/// The time that this takes does not tell where two tags differ.
[[nodiscard]] inline bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

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

}  // namespace dhp::comm
