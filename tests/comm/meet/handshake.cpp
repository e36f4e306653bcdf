// What the two sides of a connection prove to each other.
#include <dhp/comm/meet/handshake.hpp>

#include <doctest/doctest.h>

#include <set>

namespace {

using namespace dhp::comm;
using namespace dhp::comm::handshake;

const std::string secret = "the secret of the job";

TEST_CASE("handshake: a hello comes back as it was written") {
  const Hello hello{std::string(16, 's'), nonce(), 7, "job"};
  const auto payload = write_hello(hello, secret);
  const auto back = read_hello(payload, hello.server_nonce);
  REQUIRE(back.has_value());
  CHECK(back->first.rank == 7);
  CHECK(back->first.client_nonce == hello.client_nonce);
  CHECK(back->first.job == "job");
  CHECK(back->second == hello.client_proof(secret));
  CHECK(payload.find(secret) == payload.npos);
  for (std::size_t size = 0; size < payload.size(); ++size)
    CHECK(!read_hello(std::string_view(payload).substr(0, size), hello.server_nonce));
  CHECK(!read_hello(payload + "x", hello.server_nonce));
  const Hello longest{{}, nonce(), 7, std::string(longest_job_bytes, 'j')};
  CHECK(write_hello(longest, secret).size() <= longest_payload);
}

TEST_CASE("handshake: proofs depend on all that both sides know, and on the side") {
  const std::string s(16, 's'), c(16, 'c'), other(16, 'x');
  std::set<std::string> seen;
  for (const auto& hello : {Hello{s, c, 1, "job"}, Hello{other, c, 1, "job"},
                            Hello{s, other, 1, "job"}, Hello{s, c, 2, "job"}, Hello{s, c, 1, "x"}})
    for (const auto* const known : {"the secret of the job", "another secret", ""})
      seen.insert({hello.client_proof(known), hello.server_proof(known)});
  CHECK(seen.size() == 5 * 3 * 2);
}

}  // namespace
