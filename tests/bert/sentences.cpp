// Sentences and documents of plain text, and the flat corpus that holds them.
#include <examples/bert/sentences.hpp>
#include <tests/support/test.hpp>

namespace {

using examples::SentenceRule;
using Cut = std::vector<std::vector<std::string>>;

Cut cut(std::string_view text, SentenceRule rule) {
  examples::Text into;
  examples::add_documents(text, rule, into);
  Cut result;
  for (std::int64_t document = 0; document < into.size(); ++document) {
    result.emplace_back();
    const auto range = into.sentences_of(document);
    for (auto number = range.first; number < range.last; ++number)
      result.back().emplace_back(examples::sentence_text(into, number));
  }
  return result;
}

TEST_CASE("sentences: the rule \"lines\" makes each line a sentence; blank lines end documents") {
  CHECK(cut("One. Two\n  three \r\n \t\n\nfour", SentenceRule::lines) ==
        Cut{{"One. Two", "three"}, {"four"}});
  CHECK(cut("", SentenceRule::lines).empty());
  CHECK(cut("\n\n \n", SentenceRule::lines).empty());
}

TEST_CASE("sentences: the rule \"punctuation\" finds sentences across line breaks") {
  CHECK(
      cut("It rains. Does it?\nYes! \"It does.\" He left (at 3.5 p.m. or so). 42 saw\nhim.\n\nEnd",
          SentenceRule::punctuation) == Cut{{"It rains.", "Does it?", "Yes!", "\"It does.\"",
                                             "He left (at 3.5 p.m. or so).", "42 saw him."},
                                            {"End"}});
  CHECK(cut("Mr. Smith met J. Doe vs. the U.S. Army. Then... Nothing?! He said e.g. this.",
            SentenceRule::punctuation) == Cut{{"Mr. Smith met J. Doe vs. the U.S. Army.", "Then...",
                                               "Nothing?!", "He said e.g. this."}});
  CHECK(cut("\"Why?\" he asked. Nobody knew.", SentenceRule::punctuation) ==
        Cut{{"\"Why?\" he asked.", "Nobody knew."}});
  CHECK(cut("3. Grant. It ends in 1999. So", SentenceRule::punctuation) ==
        Cut{{"3. Grant.", "It ends in 1999.", "So"}});
  CHECK(cut("他来了。她走了！「好。」他说：你？\n嗯", SentenceRule::punctuation) ==
        Cut{{"他来了。", "她走了！", "「好。」", "他说：你？", "嗯"}});
  CHECK(cut("वह आया। वह गया। 3।5 هل جاء؟ نعم۔ “Yes.” No.", SentenceRule::punctuation) ==
        Cut{{"वह आया।", "वह गया।", "3।5 هل جاء؟", "نعم۔", "“Yes.”", "No."}});
  CHECK(cut("One.\rTwo.\r\rThree.", SentenceRule::lines) == Cut{{"One.", "Two."}, {"Three."}});
  CHECK(cut("...", SentenceRule::punctuation) == Cut{{"..."}});
  CHECK(cut("a.b.c", SentenceRule::punctuation) == Cut{{"a.b.c"}});
}

TEST_CASE("sentences: the rule \"automatic\" joins wrapped lines and keeps complete ones") {
  const std::string wrapped =
      "The cat sat on the mat and\nlooked out of the window at\nthe rain. It was a gray day\n"
      "and nothing moved.\n\nThe dog slept on and\non.\n";
  CHECK(cut(wrapped, SentenceRule::automatic) ==
        Cut{{"The cat sat on the mat and looked out of the window at the rain.",
             "It was a gray day and nothing moved."},
            {"The dog slept on and on."}});
  CHECK(cut("A line. With two.\nAnother line\nA third one", SentenceRule::automatic) ==
        Cut{{"A line.", "With two.", "Another line", "A third one"}});
  const std::string wide(130, 'x');  // too wide for a page: not wrapped
  CHECK(cut(wide + "\n" + wide + "\n" + wide, SentenceRule::automatic) == Cut{{wide, wide, wide}});
}

using Ids = std::vector<std::int32_t>;

TEST_CASE("documents: added sentences are read back; empty sentences and documents are dropped") {
  examples::TokenText text;
  CHECK(text.size() == 0);
  CHECK(text.sentences() == 0);
  text.end_document();
  text.add_sentence(Ids{1, 2});
  text.add_sentence(Ids{});
  text.add_sentence(Ids{3});
  text.end_document();
  text.end_document();
  text.add_sentence(Ids{4, 5, 6});
  CHECK(text.size() == 1);  // the second document is still open
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
