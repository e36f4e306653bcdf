// Reads IDX, the format of MNIST: two zero bytes, a type byte, the number of dims, big-endian u32 dims, the elements.
// Reads u8 only, the type of all published datasets.
#pragma once

#include <dhp/data/file.hpp>
#include <dhp/data/known_file.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace dhp {

namespace detail {
/// Parses strictly: a wrong magic, type or dim and a missing or extra byte are errors with their offset.
[[nodiscard]] inline HostArray parse_idx(std::span<const std::byte> bytes, const std::string& name,
                                         std::size_t limit_bytes = default_file_limit_bytes) {
  ByteCursor at(bytes, name);
  if (at.big_endian(2, "the IDX magic") != 0) {
    const auto known = known_file(text_in(bytes));
    at.reject("not an IDX file: it ",
              known.empty() ? "does not begin with two zero bytes" : "is " + std::string(known));
  }
  const auto type = at.big_endian(1, "the IDX type");
  if (type != 0x08) at.reject("IDX type ", type, " is not supported, only 8 (unsigned byte)");
  const auto dims = at.big_endian(1, "the number of dims");
  if (dims < 1 || dims > 4) at.reject("IDX with ", dims, " dims; 1 to 4 would be right");
  std::vector<std::uint64_t> extents;
  for (std::uint64_t dim = 0; dim < dims; ++dim) {
    extents.push_back(at.big_endian(4, "the dims"));
    if (extents.back() == 0) at.reject("dim ", dim, " is 0: it holds no samples");
  }
  return take_array(at, DType::u8, extents, limit_bytes);
}
}  // namespace detail

/// Reads a plain file, or a compressed one with unpack = gunzip (data/gzip.hpp).
[[nodiscard]] inline HostArray load_idx(const std::string& path, detail::Unpack unpack = nullptr,
                                        std::size_t limit_bytes = default_file_limit_bytes) {
  return detail::parse_idx(detail::read_unpacked(path, unpack, limit_bytes), path, limit_bytes);
}

}  // namespace dhp
