// Text files, directories of them, and files that are not text.
#include <examples/bert/read_text.hpp>
#include <tests/data/damage.hpp>

namespace {

std::string all(const examples::Text& text) {
  std::string joined;
  for (std::int64_t number = 0; number < text.sentences(); ++number)
    joined += std::string(examples::sentence_text(text, number)) + "|";
  return joined;
}

TEST_CASE("text: a file is read with or without a byte order mark") {
  const Folder folder;
  CHECK(all(examples::read_text(folder.write("a.txt", bytes_of("One.\nTwo.\n\nThree.\n")))) ==
        "One.|Two.|Three.|");
  CHECK(all(examples::read_text(folder.write("b.txt", bytes_of("\xEF\xBB\xBFOne.")))) == "One.|");
}

TEST_CASE("text: a directory is read in path order, each file is one document") {
  const Folder folder;
  folder.write("corpus/b.txt", bytes_of("B."));
  folder.write("corpus/a/z.txt", bytes_of("Z.\nY."));
  folder.write("corpus/a/.hidden", {std::byte{0}});
  folder.write("corpus/.git/x.txt", {std::byte{0}});
  folder.write("corpus/c", bytes_of("C"));
  folder.write("corpus/d", {});
  folder.write("corpus/e", bytes_of(" \n"));
  const auto text = examples::read_text(folder / "corpus");
  CHECK(all(text) == "Z.|Y.|B.|C|");
  CHECK(text.size() == 3);
}

TEST_CASE("text: a column of a table is read, each cell is one document") {
  const Folder folder;
  folder.write("corpus/a.jsonl",
               bytes_of("{\"t\": \"One. Two.\", \"n\": 1}\n{\"t\": \"Three.\"}\n"));
  folder.write("corpus/b.csv", bytes_of("n,t\n1,\"Four\n\nFive\"\n2,\n"));
  folder.write("corpus/c.tsv", bytes_of("\xEF\xBB\xBFt\tn\nSix\t6\n"));
  folder.write("corpus/d.txt", bytes_of("Seven"));
  const auto text = examples::read_text(folder / "corpus", {.column = "t"});
  CHECK(all(text) == "One.|Two.|Three.|Four|Five|Six|Seven|");
  CHECK(text.size() == 6);
  const auto refused = [&](const std::string& file, const std::string& column,
                           const std::string& sentence) {
    CHECK_THROWS_WITH_AS((void)examples::read_text(folder / file, {.column = column}),
                         Contains(sentence.c_str()), dhp::Error);
  };
  refused("corpus/b.csv", "", "has columns: name the one with the text by --text-column");
  refused("corpus/b.csv", "x", "has no column x, but n, t");
  refused("corpus/d.txt", "t", "has no .csv, .tsv or .jsonl file, and no columns");
  folder.write("e.csv", bytes_of("n,t\n1,\n2,  \n"));
  refused("e.csv", "t", "e.csv: has no text in column t");
}

TEST_CASE("text: files that are not text are refused with the byte's position") {
  const Folder folder;
  const auto refused = [](const std::string& path, const std::string& sentence) {
    CHECK_THROWS_WITH_AS(examples::read_text(path), Contains(sentence.c_str()), dhp::Error);
  };
  refused(folder / "none.txt", "none.txt: no such file");
  refused(folder.write("empty.txt", {}), "empty.txt: the file is empty");
  refused(folder.write("blank.txt", bytes_of(" \n\n")), "blank.txt: has no text");
  refused(folder.write("latin1.txt", bytes_of("caf\xE9")), "latin1.txt, byte 3: not UTF-8");
  refused(folder.write("binary", bytes_of(std::string_view("\x7F"
                                                           "ELF\0",
                                                           5))),
          "binary, byte 4: a zero byte");
  refused(folder.write("utf16.txt", bytes_of(std::string_view("\xFF\xFEh\0", 4))), "byte 0");
  refused(folder.write("x.gz", bytes_of("\x1F\x8B\x08")), "x.gz: is gzip-compressed");
  std::filesystem::create_directories(folder / "nothing/inside");
  refused(folder / "nothing", "the directory holds no text");
  folder.write("mixed/a.txt", bytes_of("Good."));
  folder.write("mixed/b.png", bytes_of("\x89PNG"));
  refused(folder / "mixed", "b.png, byte 0: not UTF-8");
  std::filesystem::create_symlink("nowhere", folder / "mixed/a.link");
  refused(folder / "mixed", "a.link: no such file");
}

TEST_CASE("text: damaged bytes are read or refused without a crash") {
  const auto parse = [](const dhp::Bytes& bytes, const std::string& name) {
    examples::Text text;
    examples::add_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name, {}, text);
    for (std::int64_t at = 0; at < text.sentences(); ++at) CHECK(!text.sentence(at).empty());
  };
  const dhp::RandomStream random{6, 0, 0};
  for (std::uint64_t round = 0; round < 2000; ++round) {
    auto bytes = bytes_of("It rains \xE2\x82\xAC. \"Yes!\" Mr. X.\nand so\n\non. A.b");
    for (std::uint64_t change = 0; change < 1 + round % 4; ++change)
      bytes[random.below(static_cast<std::uint32_t>(bytes.size()), round * 8 + 2 * change)] =
          static_cast<std::byte>(random.bits(round * 8 + 2 * change + 1));
    (void)survives(parse, bytes, "some/file.txt");
  }
}

std::vector<std::string> gloss(std::string_view line) {
  examples::Text text;
  examples::add_gloss(line, text);
  std::vector<std::string> result;
  for (std::int64_t number = 0; number < text.sentences(); ++number)
    result.emplace_back(examples::sentence_text(text, number));
  return result;
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

constexpr std::string_view license =
    "  1 This software and database is being provided\n  2 to you\n";

TEST_CASE("wordnet: a file's entries are read, a wrong entry is named with its byte") {
  const std::string entry =
      "00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 | that which is; \"it is\"  \n";
  examples::Text text;
  examples::add_wordnet(std::string(license) + entry + entry, "data.noun", text);
  CHECK(text.size() == 2);
  CHECK(text.sentences() == 4);
  const auto refused = [](const std::string& bytes, const std::string& sentence) {
    examples::Text into;
    CHECK_THROWS_WITH_AS(examples::add_wordnet(bytes, "data.noun", into),
                         Contains(sentence.c_str()), dhp::Error);
  };
  const auto at = std::to_string(license.size() + entry.size());
  refused(std::string(license) + entry + "no entry\n", "data.noun, byte " + at + ": not an entry");
  refused(std::string(license) + entry + "00001740 03 n no gloss\n", "data.noun, byte " + at);
  refused(std::string(license), "holds no entry");
  refused("\xFF", "data.noun, byte 0: not UTF-8");
}

TEST_CASE("wordnet: a directory needs all four files") {
  const Folder folder;
  CHECK(!examples::is_wordnet(folder / "."));
  const auto entry = bytes_of("00001740 03 n | gloss\n");
  folder.write("data.noun", entry);
  CHECK(examples::is_wordnet(folder / "."));
  CHECK_THROWS_WITH_AS(examples::read_wordnet(folder / "."), Contains("data.verb: no such file"),
                       dhp::Error);
  for (const auto* name : {"data.verb", "data.adj", "data.adv"}) folder.write(name, entry);
  CHECK(examples::read_wordnet(folder / ".").size() == 4);
}

TEST_CASE("wordnet: Debian's package wordnet-base is read") {
  const std::string path = "/usr/share/wordnet";
  if (!examples::is_wordnet(path)) {
    MESSAGE("SKIPPED: the package wordnet-base is not installed");
    return;
  }
  const auto text = examples::read_wordnet(path);
  CHECK(text.size() > 100'000);
  std::int64_t with_examples = 0;
  for (std::int64_t document = 0; document < text.size(); ++document)
    with_examples += text.sentences_of(document).size() > 1 ? 1 : 0;
  CHECK(with_examples > 30'000);
  CHECK(examples::sentence_text(text, 0).starts_with("that which is perceived"));
}

}  // namespace
