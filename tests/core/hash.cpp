#include <dhp/core/hash.hpp>
#include <tests/support/test.hpp>

TEST_CASE("hash: matches the published values of FNV-1a") {
  static_assert(dhp::detail::fnv1a("") == 0xcbf29ce484222325);
  CHECK(dhp::detail::fnv1a("a") == 0xaf63dc4c8601ec8c);
  CHECK(dhp::detail::fnv1a("foobar") == 0x85944171f73967e8);
  CHECK(dhp::detail::fnv1a("\xff") != dhp::detail::fnv1a("\x7f"));
}
