// The first three frames of a connection to a store. Each side sends a nonce and proves with it that it knows the
// secret of the job, without showing it. The frames that follow are not authenticated.
//
//   server: hello     nonce
//   client: hello     nonce, rank, job, proof
//   server: welcome   its own proof; or refused, with a reason
#pragma once

#include <dhp/comm/meet/crypto.hpp>
#include <dhp/comm/meet/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dhp::comm::handshake {

inline constexpr std::uint8_t server_hello = 1, client_hello = 2, welcome = 3, refused = 4;
inline constexpr std::size_t nonce_bytes = 16, longest_job_bytes = 256;
/// Longest payload of a frame from a peer that is not authenticated yet.
inline constexpr std::size_t longest_payload = 512;

enum class Refusal : char { job = 'j', secret = 's', connected = 'c', rank = 'r' };

/// Both sides must know the same of these. Neither frames nor messages contain the secret.
struct Job {
  std::string name;
  std::string secret;
};

/// The parameters of one connection.
struct Terms {
  std::string server_nonce{};
  std::string client_nonce{};
  std::uint32_t rank = 0;

  [[nodiscard]] std::string client_proof(const Job& job) const { return tag(job, "client"); }
  [[nodiscard]] std::string server_proof(const Job& job) const { return tag(job, "server"); }

 private:
  [[nodiscard]] std::string tag(const Job& job, std::string_view label) const {
    std::string message;
    append_field(message, label);
    append_field(message, job.name);
    append_field(message, server_nonce);
    append_field(message, client_nonce);
    append_number(message, rank);
    return hmac_sha256(job.secret, message);
  }
};

/// The payload of the client's hello.
[[nodiscard]] inline std::string write_client_hello(const Terms& terms, const Job& job) {
  std::string payload = terms.client_nonce;
  append_number(payload, terms.rank);
  append_field(payload, job.name);
  return payload + terms.client_proof(job);
}

struct ClientHello {
  Terms terms{};
  std::string job{};
  std::string proof{};
};

/// None: the bytes are not a hello.
[[nodiscard]] inline std::optional<ClientHello> read_client_hello(std::string_view payload,
                                                                  const std::string& server_nonce) {
  FieldReader fields(payload);
  const auto client_nonce = fields.bytes(nonce_bytes);
  const auto rank = fields.number();
  const auto job = fields.field();
  const auto proof = fields.bytes(hmac_bytes);
  if (!client_nonce || !rank || !job || !proof || !fields.empty()) return std::nullopt;
  return ClientHello{Terms{server_nonce, *client_nonce, *rank}, *job, *proof};
}

}  // namespace dhp::comm::handshake
