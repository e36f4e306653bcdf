// The flat corpus.
#include <dhp/data/documents.hpp>

#include <doctest/doctest.h>

namespace {

using Ids = std::vector<std::int32_t>;

TEST_CASE("documents: sentences and documents come back, empty ones are left out") {
  dhp::TokenText text;
  CHECK(text.size() == 0);
  CHECK(text.sentences() == 0);
  text.end_document();
  text.add_sentence(Ids{1, 2});
  text.add_sentence(Ids{});
  text.add_sentence(Ids{3});
  text.end_document();
  text.end_document();
  text.add_sentence(Ids{4, 5, 6});
  CHECK(text.size() == 1);  // the second is still open
  text.end_document();
  REQUIRE(text.size() == 2);
  REQUIRE(text.sentences() == 3);
  CHECK(text.sentences_of(0) == dhp::Range{0, 2});
  CHECK(text.sentences_of(1) == dhp::Range{2, 3});
  const auto ids = [&](std::int64_t number) {
    const auto sentence = text.sentence(number);
    return Ids(sentence.begin(), sentence.end());
  };
  CHECK(ids(0) == Ids{1, 2});
  CHECK(ids(1) == Ids{3});
  CHECK(ids(2) == Ids{4, 5, 6});
  CHECK(text.items().size() == 6);
  CHECK_THROWS_AS(text.sentence(3), dhp::Error);
  CHECK_THROWS_AS(text.sentence(-1), dhp::Error);
  CHECK_THROWS_AS(text.sentences_of(2), dhp::Error);
}

}  // namespace
