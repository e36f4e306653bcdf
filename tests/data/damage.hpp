// Damaged files: every truncation is refused; flipped bytes are read, or end in an Error that names the file.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/data/file.hpp>
#include <tests/support/folder.hpp>

namespace tests {

/// parse(bytes, name) returns whether the bytes could be read, or throws.
template <class Parse>
bool survives(const Parse& parse, const dhp::Bytes& bytes, const std::string& name) {
  try {
    parse(bytes, name);
    return true;
  } catch (const dhp::Error& error) {
    CHECK(has(error.sentence(), name));
    return false;
  }
}

template <class Parse>
void check_damage(const Parse& parse, const dhp::Bytes& good, int flips = 200) {
  const std::string name = "some/file.bin";
  REQUIRE(survives(parse, good, name));
  for (std::size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    // A copy of exactly this size, so that AddressSanitizer detects a read beyond it.
    CHECK(!survives(
        parse, dhp::Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)), name));
  }
  const dhp::RandomStream random{1, 2, 3};
  for (int flip = 0; flip < flips; ++flip) {
    auto bad = good;
    const auto draw = static_cast<std::uint64_t>(2 * flip);
    const auto at = random.below(static_cast<std::uint32_t>(bad.size()), draw);
    bad[at] ^= static_cast<std::byte>(1 + random.below(255, draw + 1));
    CAPTURE(at);
    (void)survives(parse, bad, name);
  }
}

inline dhp::Bytes bytes_of(std::string_view text) {
  dhp::Bytes result(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) result[at] = static_cast<std::byte>(text[at]);
  return result;
}

}  // namespace tests
