// From text to words. The expected words are those of Hugging Face's BertTokenizer (tokenizers 0.23).
#include <dhp/core/rng.hpp>
#include <dhp/data/basic_tokenizer.hpp>

#include <doctest/doctest.h>

namespace {

using Words = std::vector<std::string>;

TEST_CASE("basic tokenizer: the words that Hugging Face gives") {
  const std::pair<std::string, Words> cases[] = {
      {"Hello, World!", {"hello", ",", "world", "!"}},
      {"  don't  stop\tnow ", {"don", "'", "t", "stop", "now"}},
      {"Zürich café naïve İstanbul ẞ Straße",
       {"zurich", "cafe", "naive", "istanbul", "ß", "straße"}},
      {"e\u0301t\u0301e", {"ete"}},
      {"soft\u00ADhy\u200Bphen", {"softhyphen"}},
      {"ΆΣ Ёлка й", {"ασ", "елка", "и"}},
      {"中文abc字", {"中", "文", "abc", "字"}},
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
      {"", {}},
      {" \t\r\n ", {}},
  };
  for (const auto& [text, words] : cases) {
    CAPTURE(text);
    CHECK(dhp::BasicTokenizer{}.words(text) == words);
  }
}

TEST_CASE("basic tokenizer: cased keeps letters and accents") {
  const dhp::BasicTokenizer cased{.lower_case = false};
  CHECK(cased.words("Hello, Café E\u0301!") == Words{"Hello", ",", "Café", "E\u0301", "!"});
}

TEST_CASE("basic tokenizer: what is not UTF-8 is left out") {
  CHECK(dhp::BasicTokenizer{}.words("a\xFF"
                                    "b \xC3 c") == Words{"ab", "c"});
}

TEST_CASE("basic tokenizer: random bytes give words that are UTF-8, not empty, without spaces") {
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
    for (const auto& word : dhp::BasicTokenizer{.lower_case = round % 3 != 0}.words(text)) {
      REQUIRE(!word.empty());
      dhp::check_utf8(word, "word");
      REQUIRE(word.find(' ') == word.npos);
    }
  }
}

}  // namespace
