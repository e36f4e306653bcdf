// Files are replaced together, and only when all of them are complete.
#include <dhp/core/open_file.hpp>
#include <tests/support/folder.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <stdexcept>

namespace {

using dhp::OpenFile;
using tests::Folder;

std::string contents(const std::string& path) {
  const OpenFile file(path, O_RDONLY);
  std::string text(static_cast<std::size_t>(file.size()), '?');
  file.read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

auto writes(const std::string& text) {
  return [text](OpenFile& file) { file.write(text); };
}

TEST_CASE("files: replaced together at commit, not before") {
  const Folder folder;
  dhp::replace_file(folder / "a", writes("old a"));
  dhp::replace_file(folder / "b", writes("old b"));
  {
    dhp::FileReplacement files;
    files.add(folder / "a", writes("new a"));
    files.add(folder / "b", writes("new b"));
    CHECK(contents(folder / "a") == "old a");
    files.commit();
  }
  CHECK(contents(folder / "a") == "new a");
  CHECK(contents(folder / "b") == "new b");
}

TEST_CASE("files: what fails half-way leaves the old ones and nothing else") {
  const Folder folder;
  dhp::replace_file(folder / "a", writes("old a"));
  const auto fail_half_way = [&] {
    dhp::FileReplacement files;
    files.add(folder / "a", writes("new a"));
    files.add(folder / "b", [](OpenFile&) { throw std::runtime_error("no more"); });
    files.commit();
  };
  CHECK_THROWS_AS(fail_half_way(), std::runtime_error);
  CHECK(contents(folder / "a") == "old a");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("files: errors name the file, and what its own call left in errno") {
  const Folder folder;
  errno = EDOM;
  CHECK_THROWS_WITH_AS(OpenFile(folder / "none", O_RDONLY), doctest::Contains("none: No such file"),
                       dhp::Error);
  const OpenFile directory(folder.path, O_RDONLY);
  CHECK_THROWS_WITH_AS((void)directory.size(), doctest::Contains("is not a file"), dhp::Error);
  dhp::replace_file(folder / "short", writes("12"));
  const OpenFile file(folder / "short", O_RDONLY);
  std::byte bytes[4];
  CHECK_THROWS_WITH_AS(file.read(1, bytes), doctest::Contains("at byte 2: end of file"),
                       dhp::Error);
  const auto cannot_rename = [&] {
    dhp::FileReplacement files;
    files.add(folder / "a", writes("a"));
    std::filesystem::create_directory(folder / "a");
    files.commit();
  };
  errno = EDOM;
  CHECK_THROWS_WITH_AS(cannot_rename(), doctest::Contains("/a: Is a directory"), dhp::Error);
  OpenFile null("/dev/null", O_WRONLY);
  CHECK_THROWS_WITH_AS(null.sync(), doctest::Contains("cannot write /dev/null: Invalid argument"),
                       dhp::Error);
  OpenFile full("/dev/full", O_WRONLY);
  CHECK_THROWS_WITH_AS(full.write("x"), doctest::Contains("cannot write /dev/full: No space"),
                       dhp::Error);
}

}  // namespace
