// HMAC: published tags, and tags that differ. Random bytes do not repeat.
#include <dhp/comm/meet/crypto.hpp>

#include <doctest/doctest.h>

#include <set>

namespace {

using namespace dhp::comm;

TEST_CASE("hmac: the tags of RFC 4231") {
  CHECK(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hex(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("hmac: key and message may be empty") {
  CHECK(hex(hmac_sha256("", "")) ==
        "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  CHECK(hex(hmac_sha256(std::string_view(), std::string_view())) == hex(hmac_sha256("", "")));
}

TEST_CASE("hmac: tags are equal in all bytes, or not") {
  const auto tag = hmac_sha256("key", "message");
  CHECK(tag.size() == hmac_bytes);
  CHECK(equal_in_constant_time(tag, hmac_sha256("key", "message")));
  for (std::size_t at = 0; at < tag.size(); ++at) {
    auto other = tag;
    other[at] = static_cast<char>(other[at] ^ 1);
    CHECK(!equal_in_constant_time(tag, other));
  }
  CHECK(!equal_in_constant_time(tag, tag.substr(1)));
  CHECK(equal_in_constant_time("", ""));
}

TEST_CASE("nonce: as long as asked for, and never the same") {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(nonce());
    CHECK(nonce().size() == 16);
  }
  CHECK(seen.size() == 1000);
  CHECK(nonce(0).empty());
  const auto longer = nonce(100000);
  CHECK(longer.size() == 100000);
  CHECK(std::set<char>(longer.begin(), longer.end()).size() == 256);
}

TEST_CASE("nonce: hex") {
  CHECK(hex("") == "");
  CHECK(hex(std::string("\x00\x0f\xa9\xff", 4)) == "000fa9ff");
}

}  // namespace
