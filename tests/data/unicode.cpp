// The tables: in order, and right at their edges.
#include <dhp/data/unicode.hpp>

#include <doctest/doctest.h>

namespace {

namespace unicode = dhp::unicode;

template <std::size_t count>
void check_order(const unicode::Interval (&intervals)[count]) {
  char32_t last = 0;
  for (const auto& interval : intervals) {
    CHECK(interval.first > last);
    CHECK(interval.last >= interval.first);
    CHECK(unicode::contains(intervals, interval.first));
    CHECK(unicode::contains(intervals, interval.last));
    last = interval.last;
  }
  CHECK(!unicode::contains(intervals, intervals[0].first - 1));
  CHECK(!unicode::contains(intervals, last + 1));
}

TEST_CASE("unicode: intervals are in order, apart, and found") {
  check_order(unicode::punctuation);
  check_order(unicode::format);
  check_order(unicode::marks);
  check_order(unicode::ideographs);
}

TEST_CASE("unicode: folding is lower case without accents, and done once is done") {
  CHECK(unicode::fold(U'A') == U'a');
  CHECK(unicode::fold(U'[') == U'[');
  CHECK(unicode::fold(U'\u00C0') == U'a');
  CHECK(unicode::fold(U'\u00D7') == U'\u00D7');  // multiplication sign
  CHECK(unicode::fold(U'\u0130') == U'i');       // I with dot
  CHECK(unicode::fold(U'\u0131') == U'\u0131');  // i without
  CHECK(unicode::fold(U'\u0141') == U'\u0142');  // the stroke of L is no accent
  CHECK(unicode::fold(U'\u02FF') == U'\u02FF');
  CHECK(unicode::fold(U'\u03A9') == U'\u03C9');
  CHECK(unicode::fold(U'\u037E') == U';');  // Greek question mark
  CHECK(unicode::fold(U'\u0419') == U'\u0438');
  CHECK(unicode::fold(U'\u052E') == U'\u052F');
  CHECK(unicode::fold(U'\u1EF9') == U'y');
  CHECK(unicode::fold(U'\u4E00') == U'\u4E00');
  for (char32_t point = 0; point < 0x3000; ++point)
    REQUIRE(unicode::fold(unicode::fold(point)) == unicode::fold(point));
}

TEST_CASE("unicode: the accented letters of Latin, by range") {
  struct {
    char32_t first, last, letter;
  } const ranges[] = {{0xC0, 0xC5, U'a'},     {0xC7, 0xC7, U'c'},     {0xC8, 0xCB, U'e'},
                      {0xCC, 0xCF, U'i'},     {0xD1, 0xD1, U'n'},     {0xD2, 0xD6, U'o'},
                      {0xD9, 0xDC, U'u'},     {0xDD, 0xDD, U'y'},     {0x100, 0x105, U'a'},
                      {0x106, 0x10D, U'c'},   {0x112, 0x11B, U'e'},   {0x128, 0x130, U'i'},
                      {0x14C, 0x151, U'o'},   {0x15A, 0x161, U's'},   {0x168, 0x173, U'u'},
                      {0x179, 0x17E, U'z'},   {0x1EA0, 0x1EB7, U'a'}, {0x1EB8, 0x1EC7, U'e'},
                      {0x1ECC, 0x1EE3, U'o'}, {0x1EE4, 0x1EF1, U'u'}, {0x1EF2, 0x1EF9, U'y'}};
  for (const auto& range : ranges)
    for (auto point = range.first; point <= range.last; ++point) {
      CAPTURE(static_cast<int>(point));
      CHECK(unicode::fold(point) == range.letter);
      if (point < 0xE0) CHECK(unicode::fold(point + 0x20) == range.letter);
    }
}

TEST_CASE("unicode: spaces, control, punctuation of ASCII") {
  for (char32_t point = 0; point < 0x80; ++point) {
    const bool letter_or_digit = (point >= '0' && point <= '9') || (point >= 'A' && point <= 'Z') ||
                                 (point >= 'a' && point <= 'z');
    const int kinds = int{unicode::is_space(point)} + int{unicode::is_control(point)} +
                      int{unicode::is_punctuation(point)} + int{letter_or_digit};
    CAPTURE(static_cast<int>(point));
    CHECK(kinds == 1);
  }
  CHECK(unicode::is_control(0x85));
  CHECK(unicode::is_control(0x200B));
  CHECK(unicode::is_space(0xA0));
  CHECK(!unicode::is_punctuation(0x2044));  // fraction slash is a symbol
  CHECK(unicode::is_punctuation(0x2014));
}

}  // namespace
