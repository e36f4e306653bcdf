// A file is replaced only when the new one is complete.
#include <dhp/core/open_file.hpp>
#include <tests/support/folder.hpp>

#include <stdexcept>

TEST_CASE("files: a failed write keeps the old file and leaves no other") {
  const Folder folder;
  dhp::replace_file(folder / "a", "old");
  const auto fail_half_way = [](OpenFile& file) {
    file.write("new");
    throw std::runtime_error("no more");
  };
  CHECK_THROWS_AS(dhp::replace_file(folder / "a", fail_half_way), std::runtime_error);
  CHECK(dhp::text_of(folder / "a") == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
  dhp::replace_file(folder / "a", "new");
  CHECK(dhp::text_of(folder / "a") == "new");
}

TEST_CASE("files: errors name the file and the errno of the failed call") {
  const Folder folder;
  errno = EDOM;
  CHECK_THROWS_WITH_AS(OpenFile(folder / "none", O_RDONLY), Contains("none: No such file"),
                       dhp::Error);
  const OpenFile directory(folder.path, O_RDONLY);
  CHECK_THROWS_WITH_AS((void)directory.size(), Contains("is not a file"), dhp::Error);
  dhp::replace_file(folder / "short", "12");
  const OpenFile file(folder / "short", O_RDONLY);
  std::byte bytes[4];
  CHECK_THROWS_WITH_AS(file.read(1, bytes), Contains("at byte 2: end of file"), dhp::Error);
  std::filesystem::create_directory(folder / "a");
  CHECK_THROWS_WITH_AS(dhp::replace_file(folder / "a", "a"),
                       Contains("/a is not a file; give the name of one"), dhp::Error);
  std::filesystem::create_symlink(folder / "nowhere", folder / "link");
  CHECK_THROWS_WITH_AS(dhp::replace_file(folder / "link", "a"),
                       Contains("/link is a link to a file that is not there"), dhp::Error);
  OpenFile null("/dev/null", O_WRONLY);
  CHECK_THROWS_WITH_AS(null.sync(), Contains("cannot write /dev/null: Invalid argument"),
                       dhp::Error);
  OpenFile full("/dev/full", O_WRONLY);
  CHECK_THROWS_WITH_AS(full.write("x"), Contains("cannot write /dev/full: No space"), dhp::Error);
}
