// HMAC-SHA256 (RFC 2104) by OpenSSL's libcrypto: who knows the key can say that a message comes from one who does.
#pragma once

#include <dhp/core/error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace dhp {

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

/// The time that this takes says nothing about where two tags differ.
[[nodiscard]] inline bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace dhp
