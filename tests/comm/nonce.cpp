// Random bytes do not come again.
#include <dhp/comm/nonce.hpp>

#include <doctest/doctest.h>

#include <set>

namespace {

using namespace dhp;

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
