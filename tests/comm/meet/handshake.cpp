// What the two sides of a connection prove to each other.
#include <dhp/comm/meet/handshake.hpp>

#include <doctest/doctest.h>

#include <set>

namespace {

using namespace dhp::comm;
using namespace dhp::comm::handshake;

const Job job{"job", "the secret of the job"};

TEST_CASE("handshake: a hello comes back as it was written") {
  const Terms terms{std::string(16, 's'), nonce(), 7};
  const auto payload = write_client_hello(terms, job);
  CHECK(payload.size() <= longest_payload);
  const auto hello = read_client_hello(payload, terms.server_nonce);
  REQUIRE(hello.has_value());
  CHECK(hello->terms.rank == 7);
  CHECK(hello->terms.client_nonce == terms.client_nonce);
  CHECK(hello->job == "job");
  CHECK(hello->proof == terms.client_proof(job));
  CHECK(payload.find(job.secret) == payload.npos);
  for (std::size_t size = 0; size < payload.size(); ++size)
    CHECK(!read_client_hello(std::string_view(payload).substr(0, size), terms.server_nonce));
  CHECK(!read_client_hello(payload + "x", terms.server_nonce));
  const Job longest{std::string(longest_job_bytes, 'j'), "secret"};
  CHECK(write_client_hello(terms, longest).size() <= longest_payload);
}

TEST_CASE("handshake: proofs depend on all that was agreed on, and on who speaks") {
  const Terms terms{std::string(16, 's'), std::string(16, 'c'), 1};
  std::set<std::string> seen;
  std::size_t count = 0;
  const auto add = [&](const Terms& at, const Job& of) {
    for (const auto& tag : {at.client_proof(of), at.server_proof(of)}) {
      seen.insert(tag);
      ++count;
    }
  };
  add(terms, job);
  add({std::string(16, 't'), terms.client_nonce, 1}, job);
  add({terms.server_nonce, std::string(16, 'd'), 1}, job);
  add({terms.server_nonce, terms.client_nonce, 2}, job);
  add(terms, {"other", job.secret});
  add(terms, {"job", "another secret"});
  add(terms, {"job", ""});
  CHECK(seen.size() == count);
  CHECK(terms.client_proof(job) == Terms(terms).client_proof(Job(job)));
}

}  // namespace
