// IDX: the reader is strict for any bytes.
#include <dhp/data/idx.hpp>

#include "damage.hpp"

namespace {

dhp::Bytes small_idx() {
  return bytes_of(
      std::string_view("\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x03"
                       "abcdefghijkl",
                       28));
}
void parse(const dhp::Bytes& bytes, const std::string& name) {
  (void)dhp::detail::parse_idx(bytes, name);
}

TEST_CASE("idx: dims and elements are read") {
  CHECK(dhp::detail::parse_idx(small_idx(), "x") ==
        dhp::HostArray(dhp::DType::u8, {2, 2, 3}, bytes_of("abcdefghijkl")));
}

TEST_CASE("idx: damaged files are refused") {
  check_damage(parse, small_idx());
  auto changed = [&](std::size_t at, int value) {
    auto bytes = small_idx();
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  const auto says = [](const dhp::Bytes& bytes, const char* what) {
    CHECK_THROWS_WITH_AS(parse(bytes, "file"), Contains(what), dhp::Error);
  };
  says(changed(0, 1), "not an IDX file");
  says(changed(2, 0x0d), "IDX type 13 is not supported");
  says(changed(3, 0), "0 dims");
  says(changed(3, 9), "9 dims");
  says(changed(7, 0), "dim 0 is 0");
  says(changed(7, 1), "file, byte 22: 6 bytes more than its header says");
  says(changed(7, 3),
       "file, byte 16: ends in the middle of the elements: 18 bytes wanted, 12 left");
  says(bytes_of(
           std::string_view("\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                            "\xff\xff",
                            20)),
       "exceed the limit");
}

}  // namespace
