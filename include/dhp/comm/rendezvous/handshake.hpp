// The first three frames of a connection to a store. Each side sends a nonce and an HMAC, which proves knowledge of the
// job's secret without showing it. Later frames are not authenticated.
//
//   server: hello     nonce
//   client: hello     nonce, rank, job, proof
//   server: welcome   its own proof; or refused, with a reason
#pragma once

#include <dhp/comm/rendezvous/wire.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/core/system_error.hpp>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhp::detail {

inline constexpr std::size_t hmac_bytes = 32;

/// Returns a message's HMAC-SHA-256, of hmac_bytes bytes. Key and message may be any bytes, and the key may be empty.
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

[[nodiscard]] inline bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

[[nodiscard]] inline std::string nonce(std::size_t bytes = 16) {
  std::string made(bytes, '\0');
  for (std::size_t at = 0; at < bytes;) {
    const auto got = ::getrandom(made.data() + at, bytes - at, 0);
    if (got < 0 && errno == EINTR) continue;
    check_system(got > 0, "the system gives no random bytes");
    at += as_size(got);
  }
  return made;
}

/// Writes each byte as two lower-case hexadecimal digits.
[[nodiscard]] inline std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += digits_of(static_cast<unsigned char>(byte), 2, 16);
  return text;
}

namespace handshake {

inline constexpr std::uint8_t server_hello = 1, client_hello = 2, welcome = 3, refused = 4;
inline constexpr std::size_t nonce_bytes = 16, longest_job_bytes = 256;
/// Limit of the payload of an unauthenticated peer's frame, in bytes.
inline constexpr std::size_t longest_payload = 512;

enum class Refusal : char { job = 'j', secret = 's', connected = 'c', rank = 'r' };

/// The client's hello. Both sides prove knowledge of the secret by an HMAC of it; the secret itself is never sent.
struct Hello {
  std::string server_nonce{};  // from the server, so the client does not send it back
  std::string client_nonce{};
  std::uint32_t rank = 0;
  std::string job{};

  /// side: "client" or "server", so that neither can send back the other's proof.
  [[nodiscard]] std::string proof(std::string_view side, std::string_view secret) const {
    std::string message;
    append_field(message, side);
    for (const auto* const field : {&job, &server_nonce, &client_nonce})
      append_field(message, *field);
    append_number(message, rank);
    return hmac_sha256(secret, message);
  }
};

[[nodiscard]] inline std::string write_hello(const Hello& hello, std::string_view secret) {
  std::string payload = hello.client_nonce;
  append_number(payload, hello.rank);
  append_field(payload, hello.job);
  return payload + hello.proof("client", secret);
}
/// Reads the hello and its proof; returns nullopt if they are invalid.
[[nodiscard]] inline std::optional<std::pair<Hello, std::string>> read_hello(
    std::string_view payload, const std::string& server_nonce) {
  FieldReader fields(payload);
  const auto client_nonce = fields.bytes(nonce_bytes);
  const auto rank = fields.number();
  const auto job = fields.field();
  const auto proof = fields.bytes(hmac_bytes);
  if (!client_nonce || !rank || !job || !proof || !fields.empty()) return std::nullopt;
  return std::pair(Hello{server_nonce, *client_nonce, *rank, *job}, *proof);
}

}  // namespace handshake

}  // namespace dhp::detail
