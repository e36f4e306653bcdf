// gunzip: gzip's output, several members in a row, and damage.
#include "damage.hpp"

#ifdef DHP_HAS_ZLIB
#include <dhp/data/gzip.hpp>

namespace {

dhp::Bytes gzip(const dhp::Bytes& plain) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  dhp::Bytes result(plain.size() + 100);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  result.resize(result.size() - stream.avail_out);
  deflateEnd(&stream);
  return result;
}

TEST_CASE("gzip: packed data is unpacked, small or large, in one or two members") {
  const auto small = bytes_of("some text, some text, some text");
  CHECK(dhp::gunzip(gzip(small), "x") == small);
  dhp::Bytes large(5'000'000);
  for (std::size_t at = 0; at < large.size(); ++at)
    large[at] = static_cast<std::byte>(dhp::mix(at / 3) & 63);
  CHECK(dhp::gunzip(gzip(large), "x") == large);
  auto two = gzip(small);
  const auto second = gzip(bytes_of("more"));
  two.insert(two.end(), second.begin(), second.end());
  CHECK(dhp::gunzip(two, "x") == bytes_of("some text, some text, some textmore"));
  CHECK(dhp::gunzip(gzip({}), "x").empty());
  two.resize(two.size() + 1000);  // zeros, as after a block on tape
  CHECK(dhp::gunzip(two, "x") == bytes_of("some text, some text, some textmore"));
  two.push_back(std::byte{1});
  CHECK_THROWS_WITH_AS((void)dhp::gunzip(two, "x"), Contains("other data follow"), dhp::Error);
}

TEST_CASE("gzip: damaged data is refused by name") {
  const auto good = gzip(bytes_of("some text, some text, some text"));
  check_damage(
      [](const dhp::Bytes& bytes, const std::string& name) { (void)dhp::gunzip(bytes, name); },
      good);
  auto trailing = good;
  trailing.push_back(std::byte{7});
  CHECK_THROWS_WITH_AS((void)dhp::gunzip(trailing, "x"), Contains("other data follow"), dhp::Error);
}

TEST_CASE("gzip: a small file that unpacks beyond the limit is refused") {
  const auto bomb = gzip(dhp::Bytes(10'000'000));
  CHECK(bomb.size() < 20'000);
  CHECK(dhp::gunzip(bomb, "x", 10'000'001).size() == 10'000'000);
  CHECK_THROWS_WITH_AS((void)dhp::gunzip(bomb, "x", 1'000'000), Contains("more than the limit"),
                       dhp::Error);
}

TEST_CASE("gzip: read_unpacked reads packed and plain files") {
  const Folder folder;
  const auto packed = folder.write("packed.gz", gzip(bytes_of("inside")));
  const auto plain = folder.write("plain", bytes_of("inside"));
  CHECK(dhp::detail::read_unpacked(packed, &dhp::gunzip) == bytes_of("inside"));
  CHECK(dhp::detail::read_unpacked(plain, &dhp::gunzip) == bytes_of("inside"));
}

}  // namespace
#else
TEST_CASE("gzip: skipped, zlib was not found") { MESSAGE("skipped: zlib was not found"); }
#endif
