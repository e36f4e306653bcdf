// Text files and directories of them, and every kind of file that is not one.
#include <dhp/data/text.hpp>

#include "damage.hpp"

#include <doctest/doctest.h>

namespace {

using dhp_test::bytes_of;
using dhp_test::Folder;

std::string all(const dhp::Text& text) {
  std::string joined;
  for (std::int64_t number = 0; number < text.sentences(); ++number)
    joined += std::string(dhp::sentence_text(text, number)) + "|";
  return joined;
}

TEST_CASE("text: a file, with or without a byte order mark") {
  const Folder folder;
  CHECK(all(dhp::read_text(folder.write("a.txt", bytes_of("One.\nTwo.\n\nThree.\n")))) ==
        "One.|Two.|Three.|");
  CHECK(all(dhp::read_text(folder.write("b.txt", bytes_of("\xEF\xBB\xBFOne.")))) == "One.|");
}

TEST_CASE("text: a directory is read in the order of its paths, each file a document") {
  const Folder folder;
  folder.write("corpus/b.txt", bytes_of("B."));
  folder.write("corpus/a/z.txt", bytes_of("Z.\nY."));
  folder.write("corpus/a/.hidden", {std::byte{0}});
  folder.write("corpus/.git/x.txt", {std::byte{0}});
  folder.write("corpus/c", bytes_of("C"));
  const auto text = dhp::read_text(folder / "corpus");
  CHECK(all(text) == "Z.|Y.|B.|C|");
  CHECK(text.size() == 3);
}

TEST_CASE("text: what is not text is named, with the byte") {
  const Folder folder;
  const auto refused = [](const std::string& path, const std::string& sentence) {
    CHECK_THROWS_WITH_AS(dhp::read_text(path), doctest::Contains(sentence.c_str()), dhp::Error);
  };
  refused(folder / "none.txt", "none.txt: there is no such file");
  refused(folder.write("empty.txt", {}), "empty.txt: the file is empty");
  refused(folder.write("blank.txt", bytes_of(" \n\n")),
          "blank.txt, byte 0: the file holds nothing");
  refused(folder.write("latin1.txt", bytes_of("caf\xE9")), "latin1.txt, byte 3: not UTF-8");
  refused(folder.write("binary", bytes_of(std::string_view("\x7F"
                                                           "ELF\0",
                                                           5))),
          "binary, byte 4: a zero byte");
  refused(folder.write("utf16.txt", bytes_of(std::string_view("\xFF\xFEh\0", 4))), "byte 0");
  refused(folder.write("x.gz", bytes_of("\x1F\x8B\x08")), "x.gz: is gzip-compressed");
  std::filesystem::create_directories(folder / "nothing/inside");
  refused(folder / "nothing", "the directory holds no file");
  folder.write("mixed/a.txt", bytes_of("Good."));
  folder.write("mixed/b.png", bytes_of("\x89PNG"));
  refused(folder / "mixed", "b.png, byte 0: not UTF-8");
  std::filesystem::create_symlink("nowhere", folder / "mixed/a.link");
  refused(folder / "mixed", "a.link: there is no such file");
}

TEST_CASE("text: damaged bytes are read or refused, never more") {
  const auto parse = [](const dhp::Bytes& bytes, const std::string& name) {
    dhp::Text text;
    dhp::add_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name, {}, text);
    for (std::int64_t at = 0; at < text.sentences(); ++at) CHECK(!text.sentence(at).empty());
  };
  const dhp::RandomStream random{6, 0, 0};
  for (std::uint64_t round = 0; round < 2000; ++round) {
    auto bytes = bytes_of("It rains \xE2\x82\xAC. \"Yes!\" Mr. X.\nand so\n\non. A.b");
    for (std::uint64_t change = 0; change < 1 + round % 4; ++change)
      bytes[random.below(static_cast<std::uint32_t>(bytes.size()), round * 8 + 2 * change)] =
          static_cast<std::byte>(random.bits(round * 8 + 2 * change + 1));
    (void)dhp_test::survives(parse, bytes, "some/file.txt");
  }
}

}  // namespace
