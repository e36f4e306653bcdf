// CRC-32C: the vectors of RFC 3720, appendix B.4. The checksum is the same by bytes, by words and in pieces.
#include <dhp/core/crc32c.hpp>
#include <tests/support/test.hpp>

TEST_CASE("crc32c: matches published values") {
  std::vector<std::byte> bytes(32, std::byte{0});
  CHECK(detail::crc32c(bytes) == 0x8a9136aau);
  bytes.assign(32, std::byte{0xff});
  CHECK(detail::crc32c(bytes) == 0x62a8ab43u);
  for (std::size_t at = 0; at < 32; ++at) bytes[at] = static_cast<std::byte>(at);
  CHECK(detail::crc32c(bytes) == 0x46dd794eu);
  constexpr std::string_view digits = "123456789";
  CHECK(detail::crc32c(std::as_bytes(std::span(digits))) == 0xe3069283u);
  CHECK(detail::crc32c({}) == 0);
}

TEST_CASE("crc32c: every split, and the table, give the same checksum") {
  std::vector<std::byte> bytes(77);
  for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(at * 37);
  const auto all = detail::crc32c(bytes);
  CHECK(~detail::crc32c_bytes(~0u, bytes) == all);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
    CHECK(detail::crc32c(std::span(bytes).subspan(cut),
                         detail::crc32c(std::span(bytes).first(cut))) == all);
}
