// WordPiece: words become pieces, and pieces become words again.
#include <dhp/core/rng.hpp>
#include <examples/bert/sentences.hpp>
#include <examples/bert/wordpiece.hpp>
#include <tests/support/test.hpp>

namespace {

using Ids = std::vector<std::int32_t>;

examples::WordPiece small() {
  return examples::WordPiece(examples::Vocabulary(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "##a", "the", "u",
       ",", "é", "##é", "un##", "##ab", "want", "##ed", "##ables"}));
}

TEST_CASE("wordpiece: the longest matching piece is taken first") {
  const auto pieces = small();
  CHECK(pieces.encode("unaffable") == Ids{5, 6, 7});
  CHECK(pieces.encode("UNWANTED the, unaffables") == Ids{1, 9, 11, 5, 6, 18});
  CHECK(pieces.encode("wanted") == Ids{16, 17});
  CHECK(pieces.encode("una") == Ids{5, 8});
  CHECK(pieces.encode("") == Ids{});
  CHECK(pieces.encode("able") == Ids{1});  // pieces with ## never begin a word
}

TEST_CASE("wordpiece: a word with any part unknown is [UNK] as a whole") {
  const auto pieces = small();
  CHECK(pieces.encode("unaffablez the") == Ids{1, 9});
  CHECK(pieces.encode("zun") == Ids{1});
  CHECK(pieces.encode("é") == Ids{1});  // becomes e, which is not a token
  const examples::WordPiece cased(pieces.vocabulary(), {.lower_case = false});
  CHECK(cased.encode("éé The") == Ids{12, 13, 1});
}

TEST_CASE("wordpiece: words of more than 100 code points are [UNK]") {
  examples::Vocabulary vocabulary(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "ß", "##ß"});
  const examples::WordPiece pieces(vocabulary);
  CHECK(pieces.encode(std::string(100, 'a')).size() == 100);
  CHECK(pieces.encode(std::string(101, 'a')) == Ids{1});
  std::string wide;
  for (int at = 0; at < 100; ++at) wide += "ß";
  CHECK(pieces.encode(wide).size() == 100);
  CHECK(pieces.encode(wide + "ß") == Ids{1});
}

TEST_CASE("wordpiece: a text becomes the ids of each of its sentences") {
  const auto pieces = small();
  examples::Text text;
  examples::add_documents("the unaffable\n\nwanted the\n\u200B\nthe unaffable, the\n",
                          examples::SentenceRule::lines, text);
  REQUIRE(text.sentences() == 4);
  const auto tokens = pieces.encode(text);
  CHECK(tokens.size() == 2);
  REQUIRE(tokens.sentences() == 3);  // the format character alone is no word
  const auto ids = [&](std::int64_t number) {
    const auto sentence = tokens.sentence(number);
    return Ids(sentence.begin(), sentence.end());
  };
  CHECK(ids(0) == pieces.encode("the unaffable"));
  CHECK(ids(1) == pieces.encode("wanted the"));
  CHECK(ids(2) == pieces.encode("the unaffable, the"));
  CHECK(tokens.sentences_of(1) == dhp::Range{1, 3});
}

TEST_CASE("wordpiece: any bytes give ids of the vocabulary") {
  const auto pieces = small();
  const dhp::RandomStream random{4, 0, 0};
  for (std::uint64_t round = 0; round < 2000; ++round) {
    std::string text(random.below(120, round * 128), ' ');
    for (std::size_t at = 0; at < text.size(); ++at)
      text[at] = round % 2 == 0 ? static_cast<char>(random.bits(round * 128 + 1 + at))
                                : "unafble, \xC3\xA9s"[random.below(12, round * 128 + 1 + at)];
    for (const auto id : pieces.encode(text)) REQUIRE((id >= 0 && id < pieces.vocabulary().size()));
  }
}

}  // namespace
