// Makes .npy files for tests.
#pragma once

#include <dhp/data/npy.hpp>

#include <cstring>
#include <span>
#include <string>

namespace tests {

/// Returns the bytes of a version-1 file; T is u8, i32, i64, float or double.
template <class T>
dhp::Bytes npy_bytes(const dhp::Shape& shape, std::span<const T> values) {
  dhp::check(static_cast<std::int64_t>(values.size()) == shape.count(), "an .npy of shape ", shape,
             " needs ", shape.count(), " values, got ", values.size());
  const bool floating = dhp::is_floating(dhp::dtype_of<T>());
  std::string header = dhp::concat("{'descr': '",
                                   sizeof(T) == 1 ? "|u"
                                   : floating     ? "<f"
                                                  : "<i",
                                   sizeof(T), "', 'fortran_order': False, 'shape': (");
  for (int dim = 0; dim < shape.rank(); ++dim) header += dhp::concat(shape[dim], ", ");
  header += "), }";
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  text += header;
  dhp::Bytes result(text.size() + values.size_bytes());
  std::memcpy(result.data(), text.data(), text.size());
  if (!values.empty()) std::memcpy(result.data() + text.size(), values.data(), values.size_bytes());
  return result;
}

}  // namespace tests
