// The first three frames of a connection to a store. Each side sends a nonce and an HMAC, which proves knowledge of the
// job's secret without showing it. Later frames are not authenticated.
//
//   server: nonce
//   client: Hello
//   server: Welcome
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
#include <string>
#include <string_view>
#include <vector>

namespace dhp::detail {

inline constexpr std::size_t hmac_bytes = 32;

/// Returns a message's HMAC-SHA-256, of hmac_bytes bytes. Key and message may be any bytes, and the key may be empty.
[[nodiscard]] inline std::string hmac_sha256(std::string_view key, std::string_view message) {
  constexpr char empty[] = "";
  const auto* const key_data = key.empty() ? empty : key.data();
  std::string tag(hmac_bytes, '\0');
  std::size_t written = 0;
  const auto* const result =
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key_data, key.size(),
                reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                reinterpret_cast<unsigned char*>(tag.data()), tag.size(), &written);
  check(result != nullptr && written == hmac_bytes,
        "OpenSSL cannot make an HMAC-SHA256; does its configuration leave SHA-256 out?");
  return tag;
}

[[nodiscard]] inline bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

[[nodiscard]] inline std::string nonce(std::size_t bytes = 16) {
  std::string result(bytes, '\0');
  for (std::size_t at = 0; at < bytes;) {
    const auto got = ::getrandom(result.data() + at, bytes - at, 0);
    if (got < 0 && errno == EINTR) continue;
    check_system(got > 0, "the system gives no random bytes");
    at += as_size(got);
  }
  return result;
}

/// Writes each byte as two lower-case hexadecimal digits.
[[nodiscard]] inline std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += digits_of(static_cast<unsigned char>(byte), 2, 16);
  return text;
}

namespace handshake {

inline constexpr std::size_t nonce_bytes = 16, longest_job_bytes = 256;
/// Limit of the payload of an unauthenticated peer's frame, in bytes.
inline constexpr std::size_t longest_payload = 512;

/// The client's words. Both sides prove knowledge of the secret by an HMAC of it; the secret itself is never sent.
struct Hello {
  std::string client_nonce{};
  std::uint32_t rank = 0;
  std::string job{};
  std::string proof{};  ///< of the side "client"
  void pass(Fields& fields) { fields(client_nonce, rank, job, proof); }

  /// side: "client" or "server", so that neither can send back the other's proof.
  [[nodiscard]] std::string proof_of(const char* side, const std::string& server_nonce,
                                     std::string_view secret) const {
    return hmac_sha256(secret, Fields::written(std::vector<std::string>{
                                   side, job, server_nonce, client_nonce, concat(rank)}));
  }
};

enum class Refusal : char { none, job, secret, connected, rank };

/// The server's answer: its own proof, or why it refuses the client.
struct Welcome {
  Refusal refusal = Refusal::none;
  std::string proof{};
  void pass(Fields& fields) { fields(refusal, proof); }
};

}  // namespace handshake

}  // namespace dhp::detail
