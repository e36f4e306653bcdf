#include <dhp/core/copy_bytes.hpp>
#include <tests/support/test.hpp>

TEST_CASE("copy_bytes: copies every byte and no other, for any length") {
  constexpr std::size_t run = 1 << 17;
  for (const std::size_t bytes : {std::size_t{1}, run - 1, run, run + 1, 3 * run, 3 * run + 5}) {
    CAPTURE(bytes);
    std::vector<std::byte> from(bytes + 2), to(bytes + 2, std::byte{0xaa});
    for (std::size_t at = 0; at < from.size(); ++at)
      from[at] = static_cast<std::byte>(at * 2654435761u >> 13);
    dhp::detail::copy_bytes(to.data() + 1, from.data() + 1, bytes);
    CHECK(to.front() == std::byte{0xaa});
    CHECK(to.back() == std::byte{0xaa});
    CHECK(std::vector(to.begin() + 1, to.end() - 1) ==
          std::vector(from.begin() + 1, from.end() - 1));
  }
}

TEST_CASE("copy_bytes: accepts no bytes, and a copy onto itself") {
  dhp::detail::copy_bytes(nullptr, nullptr, 0);
  std::byte one{7}, other{8};
  dhp::detail::copy_bytes(&one, &other, 0);
  CHECK(one == std::byte{7});
  dhp::detail::copy_bytes(&one, &one, 1);
  CHECK(one == std::byte{7});
}
