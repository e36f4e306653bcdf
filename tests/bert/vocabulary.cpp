// Reads and writes vocab.txt, and refuses damaged files.
#include <examples/bert/wordpiece.hpp>
#include <tests/data/damage.hpp>

namespace {

using examples::parse_vocabulary;

const std::string good = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\ncaf\xC3\xA9\n";

TEST_CASE("vocabulary: ids are line numbers") {
  for (const auto& text : {good, good.substr(0, good.size() - 1)}) {
    const auto vocabulary = parse_vocabulary(text, "vocab.txt");
    CHECK(vocabulary.size() == 8);
    CHECK(vocabulary.classify() == 2);
    CHECK(vocabulary.separator() == 3);
    CHECK(vocabulary.token(7) == "caf\xC3\xA9");
    CHECK(vocabulary.find("##s") == 6);
    CHECK(vocabulary.find("nothing") == -1);
    CHECK(vocabulary.continues(6));
    CHECK(!vocabulary.continues(5));
    for (int id = 0; id < 8; ++id) CHECK(vocabulary.is_special(id) == (id < 5));
    CHECK(vocabulary.longest_bytes() == 6);
    CHECK_THROWS_AS(vocabulary.token(8), dhp::Error);
    CHECK_THROWS_AS(vocabulary.token(-1), dhp::Error);
  }
}

TEST_CASE("vocabulary: special tokens may have any id; CR LF, a byte order mark and copies work") {
  auto first = std::make_unique<examples::Vocabulary>(
      parse_vocabulary("\uFEFFa\r\n[MASK]\r\n[SEP]\r\n[CLS]\r\nb\r\n[UNK]\r\n[PAD]\r\n", "v"));
  const examples::Vocabulary copy = *first;
  first.reset();
  CHECK(copy.mask() == 1);
  CHECK(copy.pad() == 6);
  CHECK(copy.find("a") == 0);
  CHECK(copy.find("b") == 4);
}

TEST_CASE("vocabulary: errors name the file and the line") {
  const auto refused = [](const std::string& text, const char* sentence) {
    CHECK_THROWS_WITH_AS(parse_vocabulary(text, "v.txt"), Contains(sentence), dhp::Error);
  };
  refused("", "v.txt: the file is empty");
  refused(good + "the\n", "v.txt, line 9: the token \"the\" stands already in line 6");
  refused(good + "\nmore\n", "v.txt, line 9: an empty token");
  refused("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", "v.txt: has no token [MASK]; BERT needs [PAD]");
  refused("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", "nothing but special tokens");
  refused(good + "\xFF\n", "v.txt, byte 45: not UTF-8");
  refused(good + std::string("a\0b\n", 4), "v.txt, byte 46: a zero byte");
}

TEST_CASE("vocabulary: a written file is read back; a missing or empty one is named") {
  const Folder folder;
  const auto vocabulary = parse_vocabulary(good, "vocab.txt");
  const auto path = folder / "vocab.txt";
  dhp::replace_file(path, vocabulary_text(vocabulary));
  CHECK(examples::load_vocabulary(path).tokens() == vocabulary.tokens());
  CHECK_THROWS_WITH_AS(examples::load_vocabulary(folder / "none.txt"),
                       Contains("none.txt: no such file"), dhp::Error);
  CHECK_THROWS_WITH_AS(examples::load_vocabulary(folder.write("empty.txt", {})),
                       Contains("empty.txt: the file is empty"), dhp::Error);
}

TEST_CASE("vocabulary: flipped bits never crash") {
  const dhp::RandomStream random{3, 0, 0};
  int read = 0;
  for (std::uint64_t round = 0; round < 3000; ++round) {
    auto bytes = bytes_of(good);
    for (const std::uint64_t draw : {4 * round, 4 * round + 2})
      bytes[random.below(static_cast<std::uint32_t>(bytes.size()), draw)] =
          static_cast<std::byte>(random.bits(draw + 1));
    const auto parse = [](const dhp::Bytes& bad, const std::string& name) {
      (void)parse_vocabulary({reinterpret_cast<const char*>(bad.data()), bad.size()}, name);
    };
    read += survives(parse, bytes, "fuzz") ? 1 : 0;
  }
  CHECK(read > 0);
}

}  // namespace
