// Whole files, and the cursor that parsers use.
#include "damage.hpp"

namespace {

using dhp_test::bytes_of;

TEST_CASE("file: missing, empty, a directory, too large: each is named") {
  const dhp_test::Folder folder;
  const auto good = folder.write("good", bytes_of("abc"));
  CHECK(dhp::read_file(good) == bytes_of("abc"));
  const auto empty = folder.write("empty", {});
  const auto throws_with = [](const std::string& path, const char* what, std::size_t limit) {
    CHECK_THROWS_WITH_AS((void)dhp::read_file(path, limit), doctest::Contains(what), dhp::Error);
    CHECK_THROWS_WITH_AS((void)dhp::read_file(path, limit), doctest::Contains(path.c_str()),
                         dhp::Error);
  };
  throws_with(folder / "none", "no such file", 10);
  throws_with(folder / "", "is a directory", 10);
  throws_with(empty, "is empty", 10);
  throws_with(good, "above the limit of 2", 2);
  throws_with("/dev/zero", "not a regular file", 10);
}

TEST_CASE("file: a cursor reads numbers in both orders and never past the end") {
  const auto bytes = bytes_of(std::string_view("\x01\x02\x03\x04\x05", 5));
  dhp::ByteCursor at(bytes, "x");
  CHECK(at.big_endian(2, "a") == 0x0102);
  CHECK(at.little_endian(2, "b") == 0x0403);
  CHECK_THROWS_WITH_AS(
      (void)at.take(2, "c"),
      doctest::Contains("x, byte 4: ends in the middle of c: 2 bytes wanted, 1 left"), dhp::Error);
  CHECK_THROWS_WITH_AS(at.expect_end(), doctest::Contains("1 bytes more"), dhp::Error);
  CHECK(at.u8("d") == 5);
  at.expect_end();
}

TEST_CASE("file: sizes that overflow are refused") {
  const dhp::ByteCursor at({}, "x");
  const std::vector<std::uint64_t> extents{1ULL << 32, 1ULL << 32, 1};
  CHECK_THROWS_AS((void)dhp::checked_size_bytes(at, extents, 8, ~std::size_t{0}), dhp::Error);
  CHECK(dhp::checked_size_bytes(at, std::vector<std::uint64_t>{3, 4}, 2, 24) == 24);
  CHECK_THROWS_AS((void)dhp::checked_size_bytes(at, std::vector<std::uint64_t>{3, 4}, 2, 23),
                  dhp::Error);
}

TEST_CASE("file: compressed bytes without a way to unpack them are explained") {
  const dhp_test::Folder folder;
  const auto path = folder.write("a.gz", bytes_of("\x1f\x8b and more"));
  CHECK_THROWS_WITH_AS((void)dhp::read_unpacked(path, nullptr), doctest::Contains("without zlib"),
                       dhp::Error);
}

}  // namespace
