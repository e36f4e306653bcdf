// Reader of IDX, the format of MNIST: two zero bytes, a type byte, the number of dims, big-endian
// u32 dims, the elements. Only u8, the type of all published datasets.
#pragma once

#include <dhp/core/shape.hpp>
#include <dhp/data/file.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace dhp {

struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> values;
};

/// Strict: a wrong magic, type or dim and a missing or extra byte are errors with file and byte
/// offset.
[[nodiscard]] inline IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& name,
                                        std::size_t limit_bytes = default_file_limit_bytes) {
  ByteCursor at(bytes, name);
  if (at.big_endian(2, "the IDX magic") != 0)
    at.wrong("not an IDX file: it does not begin with two zero bytes");
  const auto type = at.u8("the IDX type");
  if (type != 0x08) at.wrong("IDX type ", int{type}, " is not supported, only 8 (unsigned byte)");
  const auto dims = at.u8("the number of dims");
  if (dims < 1 || dims > 4) at.wrong("IDX with ", int{dims}, " dims; 1 to 4 would be right");
  std::vector<std::uint64_t> extents;
  for (int dim = 0; dim < dims; ++dim) {
    extents.push_back(at.big_endian(4, "the dims"));
    if (extents.back() == 0) at.wrong("dim ", dim, " is 0: it holds no samples");
  }
  const auto values = at.take(checked_size_bytes(at, extents, 1, limit_bytes), "the elements");
  Shape shape;
  for (const auto extent : extents) shape.push_back(static_cast<std::int64_t>(extent));
  at.expect_end();
  IdxArray made{shape, std::vector<std::uint8_t>(values.size())};
  std::transform(values.begin(), values.end(), made.values.begin(),
                 [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return made;
}

/// Reads a plain file, or a compressed one with unpack = gunzip (data/gzip.hpp).
[[nodiscard]] inline IdxArray load_idx(const std::string& path, Unpack unpack = nullptr,
                                       std::size_t limit_bytes = default_file_limit_bytes) {
  return parse_idx(read_unpacked(path, unpack, limit_bytes), path, limit_bytes);
}

}  // namespace dhp
