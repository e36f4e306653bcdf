// From UTF-8 to words. The expected words are those of Hugging Face's BertTokenizer (tokenizers 0.23).
#include <dhp/core/rng.hpp>
#include <examples/bert/wordpiece.hpp>
#include <tests/support/test.hpp>

#include <cctype>

using Words = std::vector<std::string>;

TEST_CASE("basic tokenizer: splits text into the same words as Hugging Face") {
  const std::pair<std::string, Words> cases[] = {
      {"Hello, World!", {"hello", ",", "world", "!"}},
      {"  don't  stop\tnow ", {"don", "'", "t", "stop", "now"}},
      {"Zürich café naïve İstanbul ẞ Straße",
       {"zurich", "cafe", "naive", "istanbul", "ß", "straße"}},
      {"e\u0301t\u0301e", {"ete"}},
      {"soft\u00ADhy\u200Bphen", {"softhyphen"}},
      {"ΆΣ Ёлка й", {"ασ", "елка", "и"}},
      {"中文abc字", {"中", "文", "abc", "字"}},
      {"a\U0002B91Fb a\U0002B920b", {"a\U0002B91Fb", "a", "\U0002B920", "b"}},
      {"U.S.A. $3.50 (50%)",
       {"u", ".", "s", ".", "a", ".", "$", "3", ".", "50", "(", "50", "%", ")"}},
      {"a\u00A0b\u3000c", {"a", "b", "c"}},
      {"«quote»—dash…", {"«", "quote", "»", "—", "dash", "…"}},
      {std::string("x\0y\uFFFDz", 7), {"xyz"}},
      {"Ångström Ø Æ đ Ł", {"angstrom", "ø", "æ", "đ", "ł"}},
      {"[MASKED]", {"[", "masked", "]"}},
      {"Tiếng Việt", {"tieng", "viet"}},
      {"\uFEFF"
       "bom",
       {"bom"}},
      {"naïve½²", {"naive½²"}},
      {"각 が", {"\u1100\u1161\u11A8", "か"}},
      {"हिन्दी שָׁלוֹם \uF900", {"हिनदी", "שלום", "豈"}},
      {"", {}},
      {" \t\r\n ", {}},
  };
  for (const auto& [text, words] : cases) {
    CAPTURE(text);
    CHECK(examples::BasicTokenizer{}.words(text) == words);
  }
}

TEST_CASE("basic tokenizer: every accented Latin letter becomes its base letter") {
  struct {
    char32_t first, last;
    char letter;
  } const ranges[] = {{0xC0, 0xC5, 'a'},     {0xC7, 0xC7, 'c'},     {0xC8, 0xCB, 'e'},
                      {0xCC, 0xCF, 'i'},     {0xD1, 0xD1, 'n'},     {0xD2, 0xD6, 'o'},
                      {0xD9, 0xDC, 'u'},     {0xDD, 0xDD, 'y'},     {0x100, 0x105, 'a'},
                      {0x106, 0x10D, 'c'},   {0x112, 0x11B, 'e'},   {0x128, 0x130, 'i'},
                      {0x14C, 0x151, 'o'},   {0x15A, 0x161, 's'},   {0x168, 0x173, 'u'},
                      {0x179, 0x17E, 'z'},   {0x1EA0, 0x1EB7, 'a'}, {0x1EB8, 0x1EC7, 'e'},
                      {0x1ECC, 0x1EE3, 'o'}, {0x1EE4, 0x1EF1, 'u'}, {0x1EF2, 0x1EF9, 'y'}};
  for (const auto& [first, last, letter] : ranges)
    for (auto point = first; point <= last; ++point) {
      CAPTURE(static_cast<int>(point));
      utf8proc_uint8_t bytes[4];
      const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
      const std::string text(bytes, bytes + size);
      CHECK(examples::BasicTokenizer{}.words(text) == Words{std::string(1, letter)});
    }
}

TEST_CASE("basic tokenizer: an ASCII byte joins a word, is a word, separates words or is dropped") {
  for (int point = 0; point < 0x80; ++point) {
    const char letter = static_cast<char>(point);
    const auto words =
        examples::BasicTokenizer{.lower_case = false}.words(std::string{'a', letter, 'b'});
    CAPTURE(point);
    if (std::isalnum(point) != 0) CHECK(words == Words{std::string{'a', letter, 'b'}});
    else if (std::isgraph(point) != 0) CHECK(words == Words{"a", std::string(1, letter), "b"});
    else if (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r')
      CHECK(words == Words{"a", "b"});
    else CHECK(words == Words{"ab"});
  }
}

TEST_CASE("basic tokenizer: the cased form keeps case and accents; invalid UTF-8 is dropped") {
  const examples::BasicTokenizer cased{.lower_case = false};
  CHECK(cased.words("Hello, Café E\u0301!") == Words{"Hello", ",", "Café", "E\u0301", "!"});
  CHECK(examples::BasicTokenizer{}.words("a\xFF"
                                         "b \xC3 c") == Words{"ab", "c"});
}

TEST_CASE("basic tokenizer: random bytes give non-empty words of valid UTF-8 without spaces") {
  const dhp::RandomStream random{2, 0, 0};
  for (std::uint64_t round = 0; round < 3000; ++round) {
    std::string text(random.below(60, round * 64), ' ');
    for (std::size_t at = 0; at < text.size(); ++at)
      text[at] = static_cast<char>(random.bits(round * 64 + 1 + at));
    // Two tables of lead bytes make longer valid sequences likely.
    if (round % 2 == 0)
      for (std::size_t at = 0; at + 2 < text.size(); at += 3) {
        text[at] = static_cast<char>(0xE1 + random.below(12, round * 64 + at));
        text[at + 1] = static_cast<char>(0x80 | (text[at + 1] & 0x3F));
        text[at + 2] = static_cast<char>(0x80 | (text[at + 2] & 0x3F));
      }
    for (const auto& word : examples::BasicTokenizer{.lower_case = round % 3 != 0}.words(text)) {
      REQUIRE(!word.empty());
      (void)examples::checked_utf8(word, "word");
      REQUIRE(word.find(' ') == word.npos);
    }
  }
}

TEST_CASE("utf8: errors name the file and the byte") {
  (void)examples::checked_utf8("plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x98\x80", "a.txt");
  CHECK_THROWS_WITH_AS(examples::checked_utf8("caf\xE9 au lait", "a.txt"),
                       Contains("a.txt, byte 3: not UTF-8"), dhp::Error);
  CHECK_THROWS_WITH_AS(examples::checked_utf8(std::string("ab\0c", 4), "b.bin"),
                       Contains("b.bin, byte 2: a zero byte"), dhp::Error);
  CHECK_THROWS_WITH_AS(examples::checked_utf8("\xC3\xA9\xE2\x82", "cut.txt"),
                       Contains("cut.txt, byte 2"), dhp::Error);
}
