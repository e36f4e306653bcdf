// The proofs that client and server of a connection exchange.
#include <dhp/comm/rendezvous/handshake.hpp>
#include <tests/support/test.hpp>

namespace {

using namespace dhp::detail;
using namespace dhp::detail::handshake;

const std::string secret = "the secret of the job";

TEST_CASE("hmac: tags match RFC 4231, and that of the empty key and message") {
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hex(hmac_sha256(std::string_view(), std::string_view())) ==
        "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("hmac: tags are equal only if all bytes are equal") {
  const auto tag = hmac_sha256("key", "message");
  CHECK(equal_in_constant_time(tag, hmac_sha256("key", "message")));
  CHECK(!equal_in_constant_time(tag, tag.substr(1)));
  for (std::size_t at = 0; at < tag.size(); ++at) {
    auto other = tag;
    other[at] = static_cast<char>(other[at] ^ 1);
    CHECK(!equal_in_constant_time(tag, other));
  }
}

TEST_CASE("nonce: nonces have the requested length and never repeat") {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(nonce());
  CHECK(seen.size() == 1000);
  const auto longer = nonce(100000);
  CHECK(longer.size() == 100000);
  CHECK(std::set<char>(longer.begin(), longer.end()).size() == 256);
}

TEST_CASE("handshake: the longest hello fits into a frame, and shows no secret") {
  Hello hello{nonce(), 7, std::string(longest_job_bytes, 'j')};
  hello.proof = hello.proof_of("client", nonce(), secret);
  const auto payload = Fields::written(hello);
  CHECK(payload.size() <= longest_payload);
  CHECK(payload.find(secret) == payload.npos);
}

TEST_CASE("handshake: proofs depend on the secret, all fields of the hello and the side") {
  const std::string s(16, 's'), c(16, 'c'), other(16, 'x');
  std::set<std::string> seen;
  for (const auto& hello :
       {Hello{c, 1, "job"}, Hello{other, 1, "job"}, Hello{c, 2, "job"}, Hello{c, 1, "x"}})
    for (const auto* const known : {"the secret of the job", "another secret", ""})
      for (const auto* const side : {"client", "server"})
        for (const auto& server_nonce : {s, other})
          seen.insert(hello.proof_of(side, server_nonce, known));
  CHECK(seen.size() == 4 * 3 * 2 * 2);
}

}  // namespace
