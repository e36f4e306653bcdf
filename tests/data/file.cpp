// Reads of whole files, and the cursor with which parsers read bytes.
#include "damage.hpp"

TEST_CASE("file: a missing, empty, too large or irregular file is named") {
  const Folder folder;
  const auto good = folder.write("good", bytes_of("abc"));
  CHECK(dhp::read_file(good) == bytes_of("abc"));
  const auto empty = folder.write("empty", {});
  const auto throws_with = [](const std::string& path, const char* what, std::size_t limit) {
    CHECK_THROWS_WITH_AS((void)dhp::read_file(path, limit), Contains(what), dhp::Error);
    CHECK_THROWS_WITH_AS((void)dhp::read_file(path, limit), Contains(path.c_str()), dhp::Error);
  };
  throws_with(folder / "none", "no such file", 10);
  throws_with(folder / "", "is a directory", 10);
  throws_with(empty, "is empty", 10);
  throws_with(good, "above the limit of 2", 2);
  throws_with("/dev/zero", "not a regular file", 10);
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  throws_with(folder / "loop", "symbolic links", 10);
}

TEST_CASE("file: a cursor reads both byte orders and never past the end") {
  const auto bytes = bytes_of(std::string_view("\x01\x02\x03\x04\x05", 5));
  dhp::detail::ByteCursor at(bytes, "x");
  CHECK(at.big_endian(2, "a") == 0x0102);
  CHECK(at.little_endian(2, "b") == 0x0403);
  CHECK_THROWS_WITH_AS((void)at.take(2, "c"),
                       Contains("x, byte 4: ends in the middle of c: 2 bytes wanted, 1 left"),
                       dhp::Error);
  CHECK(at.left() == 1);
}

TEST_CASE("file: an array has the size of its dims, within the limit") {
  using Extents = std::vector<std::uint64_t>;
  const auto bytes = bytes_of("abcdefgh");
  const auto take = [&](const Extents& extents, std::size_t limit) {
    dhp::detail::ByteCursor at(bytes, "x");
    return dhp::detail::take_array(at, dhp::DType::i32, extents, limit);
  };
  CHECK(take({2, 1}, 8) == dhp::HostArray(dhp::DType::i32, {2, 1}, bytes));
  CHECK_THROWS_WITH_AS(take({2}, 7), Contains("exceed the limit of 7"), dhp::Error);
  CHECK_THROWS_WITH_AS(take({1ULL << 32, 1ULL << 32, 1}, ~std::size_t{0}),
                       Contains("exceed the limit"), dhp::Error);
  CHECK_THROWS_WITH_AS(take({1}, 8), Contains("4 bytes more"), dhp::Error);
  CHECK_THROWS_WITH_AS(take({3}, 12), Contains("ends in the middle"), dhp::Error);
}

TEST_CASE("file: compressed bytes without zlib are refused with the reason") {
  const Folder folder;
  const auto path = folder.write("a.gz", bytes_of("\x1f\x8b and more"));
  CHECK_THROWS_WITH_AS((void)dhp::detail::read_unpacked(path, nullptr), Contains("without zlib"),
                       dhp::Error);
}
