// Tar shards in WebDataset's format: groups of members, long names, labels, damage.
#include <dhp/data/tar.hpp>

#include "shards.hpp"

namespace {

std::optional<std::int64_t> label_of_toy_json(const std::string& text) {
  if (text == "{}") return std::nullopt;
  return static_cast<std::int64_t>(text.size());
}

dhp::detail::ShardScan scan(const std::string& contents, bool skip_bad = false, bool json = true) {
  const Folder folder;
  dhp::detail::ShardScan result{.skip_bad = skip_bad};
  dhp::detail::scan_tar(folder.write("a.tar", bytes_of(contents)), toy_decoders(),
                        json ? &label_of_toy_json : nullptr, result);
  return result;
}

TEST_CASE("tar: consecutive members of one key are a sample, in any order") {
  const auto contents =
      member("./", "", '5') + member("0001.toy", "TOY1") + member("0001.cls", "3\n") +
      member("0001.seg.toy", "another") + member("d/0002.json", "12345") +
      member("d/0002.TOY", "TOY2") + member("README", "words") + member(".hidden.toy", "?") +
      member("0003.json", "{}") + member("0003.CLS", " 7\n") + member("0003.toy", "TOY3") +
      member("v1.2/photo.jpg.toy", "?") + member("v1.2/photo.jpg.cls", "1") + tar_end;
  const auto found = scan(contents);
  REQUIRE(found.samples.size() == 3);
  for (std::size_t at = 0; at < 3; ++at) {
    CHECK(contents.substr(found.samples[at].at, found.samples[at].bytes) ==
          dhp::concat("TOY", at + 1));
    CHECK(found.samples[at].before + found.samples[at].after == 0);
  }
  CHECK(found.samples[0].label == 3);
  CHECK(found.samples[1].label == 5);
  CHECK(found.samples[2].label == 7);
  CHECK(found.left_out.members == 3);
  CHECK(found.left_out.first.ends_with("a.tar: README"));
}

TEST_CASE("tar: long names in all three forms, and concatenated archives, are read") {
  const std::string long_name(150, 'n');
  const auto pax_line = [](const std::string& text) {
    const auto length = text.size() + 5;  // three digits, a space and the end of the line
    return dhp::concat(length, " ", text, "\n");
  };
  const auto found =
      scan(member("1.toy", "TOY1", '0', std::string(120, 'p')) +
           member("1.cls", "1", '0', std::string(120, 'p')) + tar_end +
           member("././@LongLink", long_name + ".toy" + '\0', 'L') + member(long_name, "TOY2") +
           member("././@LongLink", long_name + ".cls" + '\0', 'L') + member(long_name, "2") +
           member("pax", pax_line("path=" + long_name + "x.toy"), 'x') + member("short", "TOY3") +
           member("pax", pax_line("path=" + long_name + "x.cls"), 'x') + member("short", "3") +
           member("pax", pax_line("path=" + long_name + "/d/"), 'x') + member("short", "", '5') +
           member("4.toy", "TOY4") + member("4.cls", "4") +
           member("pax", "18 comment=global\n", 'g') + tar_end);
  REQUIRE(found.samples.size() == 4);
  for (std::size_t at = 0; at < 4; ++at) CHECK(found.samples[at].label == static_cast<int>(at) + 1);
}

TEST_CASE("tar: errors name the byte") {
  const auto check_error = [&](const std::string& contents, const std::string& sentence) {
    CHECK_THROWS_WITH_AS(scan(contents), Contains(sentence.c_str()), dhp::Error);
  };
  const auto good = member("1.toy", "TOY1") + member("1.cls", "1");
  const auto next = dhp::concat("a.tar, byte ", good.size(), ": ");
  check_error(good, next + "the file ends without tar's end mark");
  check_error(good + std::string(100, '\0'), next + "the file ends in the middle of a tar header");
  check_error(good + member("2.toy", std::string(600, 'x')).substr(0, 700),
              next + "the member 2.toy of 600 bytes is cut off");
  auto bad = member("2.toy", "TOY2");
  bad[3] ^= 1;
  check_error(good + bad + tar_end, next + "the checksum of a tar header is wrong");
  check_error(bad, "not a tar file, or damaged");
  check_error("\x1f\x8b\x08" + std::string(600, 'z'),
              "is compressed by gzip (gunzip unpacks it); samples");
  check_error("version https://git-lfs.github.com/spec/v1\n" + std::string(600, 'z'),
              "git lfs pull");
  check_error("<html>404</html>", "a.tar, byte 0: is an HTML page");
  check_error(member("1.toy", "TOY1") + tar_end, "byte 0: the sample 1 has no label");
  check_error(member("1.cls", "1") + tar_end,
              "byte 0: the sample 1 has a label and no image (.toy) among 1.cls");
  check_error(member("1.cls", "cat") + tar_end,
              "1.cls: \"cat\" is not the number of a class; --skip-bad leaves out what is damaged");
  check_error(member("1.cls", "-1") + tar_end, "1.cls: the label is -1");
  check_error(member("1.cls", "99999999999") + tar_end,
              "is 99999999999; 0 to 2147483646 would be right");
  check_error(member("1.cls", "7") + member("1.json", "12") + tar_end,
              "1.json: its label is 2, and 7 in another");
  check_error(good + member("1.TOY", "TOY2") + tar_end,
              "an image already: 1.toy 1.cls; --skip-bad");
  check_error(good + member("2.toy", "", '2') + tar_end, "2.toy: it is a link");
  check_error(member("p", "999 path=x\n", 'x') + tar_end, "a pax header is damaged");
  try {
    (void)scan(member("1.cls", "cat") + tar_end);
  } catch (const dhp::Error& error) {  // the advice appears only once
    CHECK(error.sentence().find("skip-bad") == error.sentence().rfind("skip-bad"));
  }
  CHECK_THROWS_WITH_AS(scan(member("1.json", "12") + tar_end, false, false),
                       Contains("built without JSON"), dhp::Error);
}

TEST_CASE("tar: damaged samples are skipped and counted, the others kept") {
  const auto sample = [&](const std::string& key, const std::string& label) {
    return member(key + ".toy", "TOY" + key) + member(key + ".cls", label);
  };
  const auto found = scan(sample("1", "1") + sample("2", "cat") + sample("3", "3") +
                              member("4.toy", "TOY4").substr(0, 515),
                          true);
  REQUIRE(found.samples.size() == 2);
  CHECK(found.samples[1].label == 3);
  CHECK(found.skipped.size() == 2);
}

TEST_CASE("tar: truncated files and flipped bytes are read or refused") {
  const Folder folder;
  const auto parse = [&](const dhp::Bytes& bytes, const std::string& name) {
    dhp::detail::ShardScan result;
    dhp::detail::scan_tar(folder.write(name, bytes), toy_decoders(), nullptr, result);
    dhp::check(!result.samples.empty(), "", name, ": nothing");
  };
  check_damage(parse,
               bytes_of(member("1.toy", "TOY1") + member("1.cls", "1") + std::string(512, '\0')),
               300);
}

}  // namespace
