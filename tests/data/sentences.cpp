// Sentences and documents of plain text.
#include <dhp/data/sentences.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using dhp::SentenceRule;
using Cut = std::vector<std::vector<std::string>>;

Cut cut(std::string_view text, SentenceRule rule) {
  dhp::Text into;
  dhp::add_documents(text, rule, into);
  Cut made;
  for (std::int64_t document = 0; document < into.size(); ++document) {
    made.emplace_back();
    const auto range = into.sentences_of(document);
    for (auto number = range.first; number < range.last; ++number)
      made.back().emplace_back(dhp::sentence_text(into, number));
  }
  return made;
}

TEST_CASE("sentences: lines, with documents between blank lines") {
  CHECK(cut("One. Two\n  three \r\n \t\n\nfour", SentenceRule::lines) ==
        Cut{{"One. Two", "three"}, {"four"}});
  CHECK(cut("", SentenceRule::lines).empty());
  CHECK(cut("\n\n \n", SentenceRule::lines).empty());
}

TEST_CASE("sentences: by punctuation, over line breaks") {
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
  CHECK(cut("...", SentenceRule::punctuation) == Cut{{"..."}});
  CHECK(cut("a.b.c", SentenceRule::punctuation) == Cut{{"a.b.c"}});
}

TEST_CASE("sentences: automatic joins broken lines and keeps whole ones") {
  const std::string wrapped =
      "The cat sat on the mat and\nlooked out of the window at\nthe rain. It was a grey day\n"
      "and nothing moved.\n\nThe dog slept on and\non.\n";
  CHECK(cut(wrapped, SentenceRule::automatic) ==
        Cut{{"The cat sat on the mat and looked out of the window at the rain.",
             "It was a grey day and nothing moved."},
            {"The dog slept on and on."}});
  CHECK(cut("A line. With two.\nAnother line\nA third one", SentenceRule::automatic) ==
        Cut{{"A line.", "With two.", "Another line", "A third one"}});
  const std::string wide(130, 'x');  // lines that no page is wide enough for are not broken ones
  CHECK(cut(wide + "\n" + wide + "\n" + wide, SentenceRule::automatic) == Cut{{wide, wide, wide}});
}

}  // namespace
