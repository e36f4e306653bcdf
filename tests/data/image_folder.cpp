// A directory of images by class. The decoder is a toy, so that the test needs no image library.
#include <dhp/data/image_folder.hpp>

#include "shards.hpp"

namespace {

std::vector<dhp::Decoder> toy() { return {{{".toy", ".ty"}, &decode_toy}}; }

static_assert(dhp::Dataset<dhp::ImageFolder>);

TEST_CASE("image folder: classes and files are in the order of their names") {
  const Folder folder;
  folder.write("dog/2.toy", bytes_of("TOYd"));
  folder.write("dog/1.TOY", bytes_of("TOYc"));
  folder.write("cat/deep/x.toy", bytes_of("TOYa"));
  folder.write("cat/a.toy", bytes_of("TOYb"));
  folder.write("cat/.hidden", bytes_of("?"));
  folder.write("cat/.git/y.toy", bytes_of("?"));
  folder.write("README", bytes_of("not a class"));
  folder.write(".elsewhere/z.toy", bytes_of("TOYz"));
  std::filesystem::create_symlink("../.elsewhere", folder / "dog/linked");
  std::filesystem::create_symlink("../..", folder / "dog/linked/above");  // a cycle
  std::filesystem::create_symlink(".", folder / "cat/itself");
  const dhp::ImageFolder data(folder / "", toy(), {.threads = 2});
  CHECK(data.class_names() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(data.size() == 5);
  std::string seen;
  for (std::int64_t index = 0; index < 5; ++index) {
    const auto sample = data.get(index);
    seen += static_cast<char>(sample.image.pixels[0]);
    CHECK(sample.label == (index < 2 ? 0 : 1));
    CHECK(sample.image.channels == 3);
  }
  CHECK(seen == "bacdz");
}

TEST_CASE("image folder: a bad file is named, or skipped and counted") {
  const Folder folder;
  folder.write("a/1.toy", bytes_of("TOY1"));
  folder.write("a/2.toy", bytes_of("damaged"));
  folder.write("a/3.toy", {});
  folder.write("b/1.toy", bytes_of("TOY2"));
  folder.write("b/notes.txt", bytes_of("words"));
  std::filesystem::create_symlink("/nowhere/at/all", folder / "b/link.toy");
  CHECK_THROWS_WITH_AS(dhp::ImageFolder(folder / "", toy()),
                       Contains("b/notes.txt: not an image format"), dhp::Error);
  const dhp::ImageFolder data(folder / "", toy(), {.skip_bad = true, .threads = 2});
  CHECK(data.size() == 2);
  REQUIRE(data.skipped().size() == 4);
  CHECK(has(data.skipped()[0], "a/2.toy"));
  CHECK(has(data.skipped()[1], "a/3.toy: the file is empty"));
  CHECK(has(data.skipped()[2], "b/link.toy: no such file"));
  CHECK(has(data.skipped()[3], "b/notes.txt: not an image format"));
  CHECK(data.get(1).image.pixels[0] == '2');
}

TEST_CASE("image folder: a test set has the training set's classes") {
  const Folder folder;
  folder.write("b/1.toy", bytes_of("TOY1"));
  std::filesystem::create_directory(folder / "c");
  const auto make = [&](std::vector<std::string> classes) {
    return dhp::ImageFolder(folder / "", toy(), {.classes = std::move(classes)});
  };
  const auto data = make({"a", "b", "c", "d"});
  CHECK(data.classes() == 4);
  REQUIRE(data.size() == 1);
  CHECK(data.label(0) == 1);
  CHECK_THROWS_AS((void)data.label(1), dhp::Error);
  CHECK_THROWS_WITH_AS(make({"a", "b"}), Contains("has a folder \"c\" that the training images"),
                       dhp::Error);
  std::filesystem::remove_all(folder / "b");
  CHECK_THROWS_WITH_AS(make({"b", "c"}), Contains("holds no image that can be read"), dhp::Error);
}

TEST_CASE("image folder: files are only listed at the start; a bad one is an error when read") {
  const Folder folder;
  folder.write("a/1.toy", bytes_of("TOY1"));
  folder.write("a/2.toy", bytes_of("damaged"));
  const dhp::ImageFolder data(folder / "", toy());
  CHECK(data.size() == 2);
  CHECK(data.get(0).label == 0);
  CHECK_THROWS_WITH_AS((void)data.get(1), Contains("a/2.toy: damaged toy; --skip-bad"), dhp::Error);
}

TEST_CASE("image folder: the format follows the first bytes before the name") {
  const Folder folder;
  folder.write("a/1.toy", bytes_of("TOYx"));
  const auto other = [](std::span<const std::byte>, const std::string&, const dhp::DecodeOptions&) {
    return dhp::Image::blank(7, 7, 3);
  };
  auto decoders = toy();
  decoders.push_back({{".other"}, other, "TOYx"});
  CHECK(dhp::ImageFolder(folder / "", decoders).get(0).image.height == 7);
}

TEST_CASE("image folder: a file whose format differs from its name is reported as what it is") {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> files[] = {
      {"RIFF\x10\0\0\0WEBPVP8 "s, "is a WebP image; this program reads .toy .ty"},
      {"\0\0\0\x18"
       "ftypheic\0"s,
       "is a HEIC image"},
      {"\0\0\0\x18"
       "ftypavif\0"s,
       "is an AVIF image"},
      {"GIF89a..."s, "is a GIF image"},
      {"MM\0*...."s, "is a TIFF image"},
      {"BM....\0\0\0\0...."s, "is a BMP image"},
      {"\n<!DOCTYPE HTML><p>404"s, "is an HTML page"},
      {"\x1f\x8b\x08..."s, "is compressed by gzip (gunzip unpacks it)"},
      {"version https://git-lfs.github.com/spec/v1"s, "is a Git LFS pointer (git lfs pull"},
      {std::string(100, '\0'), "holds nothing but zero bytes"},
      {"{}"s, "a/1.toy: damaged toy"}};
  for (const auto& [contents, says] : files) {
    const Folder folder;
    folder.write("a/1.toy", bytes_of(contents));
    CHECK_THROWS_WITH_AS((void)dhp::ImageFolder(folder / "", toy()).get(0), Contains(says),
                         dhp::Error);
  }
}

TEST_CASE("image folder: a directory that is not an image data set is refused with the reason") {
  const Folder folder;
  const auto make = [&](const std::string& path) { return dhp::ImageFolder(path, toy()); };
  CHECK_THROWS_WITH_AS(make(folder / "none"), Contains("no such directory"), dhp::Error);
  CHECK_THROWS_WITH_AS(make(folder / ""), Contains("holds no directory of a class"), dhp::Error);
  std::filesystem::create_directory(folder / "empty");
  CHECK_THROWS_WITH_AS(make(folder / ""), Contains("empty: holds no image"), dhp::Error);
  CHECK_THROWS_WITH_AS(dhp::ImageFolder(folder / "", {}), Contains("without any image format"),
                       dhp::Error);
}

}  // namespace
