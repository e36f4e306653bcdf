// UTF-8: what is accepted, what is not, and that errors name the byte.
#include <dhp/core/rng.hpp>
#include <dhp/data/utf8.hpp>

#include <doctest/doctest.h>

namespace {

using dhp::decode_utf8;

TEST_CASE("utf8: every code point comes back") {
  for (char32_t point = 0; point <= 0x10FFFF; point += point < 0x3000 ? 1 : 37) {
    if (point >= 0xD800 && point <= 0xDFFF) continue;
    std::string text;
    dhp::append_utf8(text, point);
    const auto got = decode_utf8(text, 0);
    REQUIRE(got.valid);
    REQUIRE(got.value == point);
    REQUIRE(got.size_bytes == text.size());
    for (std::size_t size = 1; size < text.size(); ++size)  // cut short
      REQUIRE(!decode_utf8(std::string_view(text).substr(0, size), 0).valid);
  }
}

TEST_CASE("utf8: overlong forms, surrogates, lone tails and what is too large are not valid") {
  for (const char* bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFE", "\xFF", "\xC3(", "\xE2\x82("}) {
    CAPTURE(static_cast<int>(static_cast<unsigned char>(bad[0])));
    const auto got = decode_utf8(bad, 0);
    CHECK(!got.valid);
    CHECK(got.value == 0xFFFD);
    CHECK(got.size_bytes == 1);
  }
}

TEST_CASE("utf8: errors name the file and the byte") {
  dhp::check_utf8("plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80", "a.txt");
  CHECK_THROWS_WITH_AS(dhp::check_utf8("caf\xE9 au lait", "a.txt"),
                       doctest::Contains("a.txt, byte 3: not UTF-8"), dhp::Error);
  CHECK_THROWS_WITH_AS(dhp::check_utf8(std::string("ab\0c", 4), "b.bin"),
                       doctest::Contains("b.bin, byte 2: a zero byte"), dhp::Error);
  CHECK_THROWS_WITH_AS(dhp::check_utf8("\xC3\xA9\xE2\x82", "cut.txt"),
                       doctest::Contains("cut.txt, byte 2"), dhp::Error);
}

TEST_CASE("utf8: random bytes are walked to their end, each byte once") {
  const dhp::RandomStream random{1, 0, 0};
  for (std::uint64_t round = 0; round < 2000; ++round) {
    std::string text(random.below(40, round * 64), ' ');
    for (std::size_t at = 0; at < text.size(); ++at)
      text[at] = static_cast<char>(random.bits(round * 64 + 1 + at));
    std::size_t walked = 0;
    while (walked < text.size()) walked += decode_utf8(text, walked).size_bytes;
    REQUIRE(walked == text.size());
    CHECK(dhp::count_code_points(text) <= text.size());
  }
}

}  // namespace
