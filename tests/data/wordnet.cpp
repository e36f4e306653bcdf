// WordNet's glosses: the format by hand, and the real thing where the package is installed.
#include <dhp/data/wordnet.hpp>

#include "damage.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string> gloss(std::string_view line) {
  dhp::Text text;
  dhp::add_gloss(line, text);
  std::vector<std::string> made;
  for (std::int64_t number = 0; number < text.sentences(); ++number)
    made.emplace_back(dhp::sentence_text(text, number));
  return made;
}
using Gloss = std::vector<std::string>;

TEST_CASE("wordnet: a gloss is a definition and its examples") {
  CHECK(gloss("a whole; \"the team is a unit\"; \"how big?\"  ") ==
        Gloss{"a whole", "the team is a unit", "how big?"});
  CHECK(gloss("a living entity  ") == Gloss{"a living entity"});
  CHECK(gloss("edible; eaten; \"good\"- J. Smith; \"better\"") ==
        Gloss{"edible; eaten", "good", "better"});
  CHECK(gloss("used of \"things\" only: \"a thing\"") ==
        Gloss{"used of \"things\" only", "a thing"});
  CHECK(gloss("open; \"never closed") == Gloss{"open", "never closed"});
  CHECK(gloss("empty; \"\"") == Gloss{"empty"});
  CHECK(gloss("\"").empty());
  CHECK(gloss("").empty());
}

constexpr std::string_view licence =
    "  1 This software and database is being provided\n  2 to you\n";

TEST_CASE("wordnet: entries of a file; a wrong one is named with its byte") {
  const std::string entry =
      "00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 | that which is; \"it is\"  \n";
  dhp::Text text;
  dhp::add_wordnet(std::string(licence) + entry + entry, "data.noun", text);
  CHECK(text.size() == 2);
  CHECK(text.sentences() == 4);
  const auto refused = [](const std::string& bytes, const std::string& sentence) {
    dhp::Text into;
    CHECK_THROWS_WITH_AS(dhp::add_wordnet(bytes, "data.noun", into),
                         doctest::Contains(sentence.c_str()), dhp::Error);
  };
  const auto at = std::to_string(licence.size() + entry.size());
  refused(std::string(licence) + entry + "no entry\n", "data.noun, byte " + at + ": not an entry");
  refused(std::string(licence) + entry + "00001740 03 n no gloss\n", "data.noun, byte " + at);
  refused(std::string(licence), "holds no entry");
  refused("\xFF", "data.noun, byte 0: not UTF-8");
}

TEST_CASE("wordnet: a directory needs all four files") {
  const dhp_test::Folder folder;
  CHECK(!dhp::is_wordnet(folder / "."));
  const auto entry = dhp_test::bytes_of("00001740 03 n | gloss\n");
  folder.write("data.noun", entry);
  CHECK(dhp::is_wordnet(folder / "."));
  CHECK_THROWS_WITH_AS(dhp::read_wordnet(folder / "."),
                       doctest::Contains("data.verb: there is no such file"), dhp::Error);
  for (const auto* name : {"data.verb", "data.adj", "data.adv"}) folder.write(name, entry);
  CHECK(dhp::read_wordnet(folder / ".").size() == 4);
}

TEST_CASE("wordnet: the package of Debian") {
  const std::string path = "/usr/share/wordnet";
  if (!dhp::is_wordnet(path)) {
    MESSAGE("SKIPPED: the package wordnet-base is not installed");
    return;
  }
  const auto text = dhp::read_wordnet(path);
  CHECK(text.size() > 100'000);
  std::int64_t with_examples = 0;
  for (std::int64_t document = 0; document < text.size(); ++document)
    with_examples += text.sentences_of(document).size() > 1 ? 1 : 0;
  CHECK(with_examples > 30'000);
  CHECK(dhp::sentence_text(text, 0).starts_with("that which is perceived"));
}

}  // namespace
