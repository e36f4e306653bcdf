// UTF-8, strictly: no overlong forms, no surrogates, nothing beyond U+10FFFF (RFC 3629).
#pragma once

#include <dhp/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dhp {

struct CodePoint {
  char32_t value = 0;
  std::size_t size_bytes = 1;
  bool valid = true;
};

/// The code point that begins at byte `at` < text.size(). What is not UTF-8 counts as one byte that is
/// U+FFFD, the replacement character, with valid == false.
[[nodiscard]] constexpr CodePoint decode_utf8(std::string_view text, std::size_t at) {
  constexpr CodePoint invalid{0xFFFD, 1, false};
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {lead, 1, true};
  std::size_t size = 0;
  char32_t least = 0;
  char32_t value = 0;
  if (lead >= 0xC2 && lead < 0xE0) {
    size = 2, least = 0x80, value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead < 0xF0) {
    size = 3, least = 0x800, value = lead & 0x0F;
  } else if (lead >= 0xF0 && lead < 0xF5) {
    size = 4, least = 0x10000, value = lead & 0x07;
  } else {
    return invalid;
  }
  if (size > text.size() - at) return invalid;
  for (std::size_t next = 1; next < size; ++next) {
    if ((byte(at + next) & 0xC0) != 0x80) return invalid;
    value = value << 6 | (byte(at + next) & 0x3F);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < least || value > 0x10FFFF || surrogate) return invalid;
  return {value, size, true};
}

/// Appends a code point up to U+10FFFF.
inline void append_utf8(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  const auto tail = [&](int shift) { put(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), tail(0);
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), tail(6), tail(0);
  } else {
    put(0xF0 | point >> 18), tail(12), tail(6), tail(0);
  }
}

/// How many code points; each invalid byte counts as one.
[[nodiscard]] constexpr std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).size_bytes) ++count;
  return count;
}

/// Throws unless the bytes are text: UTF-8 without a zero byte. The error names `name` and the byte.
inline void check_utf8(std::string_view bytes, const std::string& name) {
  for (std::size_t at = 0; at < bytes.size();) {
    check(bytes[at] != '\0', "", name, ", byte ", at,
          ": a zero byte; this is a binary file, not text");
    const auto point = decode_utf8(bytes, at);
    check(point.valid, "", name, ", byte ", at, ": not UTF-8 (a byte of value ",
          int{static_cast<unsigned char>(bytes[at])},
          "); convert the file with iconv, or give a text file");
    at += point.size_bytes;
  }
}

}  // namespace dhp
