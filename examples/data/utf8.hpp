// UTF-8, strictly (RFC 3629), through utf8proc (Debian: libutf8proc-dev).
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/known_file.hpp>

#include <utf8proc.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace examples {

struct CodePoint {
  utf8proc_int32_t value = 0;
  std::size_t size_bytes = 1;
  bool valid = true;
};

/// Decodes the code point that begins at byte `at` < text.size(). Invalid UTF-8 counts as one byte with U+FFFD, the
/// replacement character, and valid == false.
[[nodiscard]] inline CodePoint decode_utf8(std::string_view text, std::size_t at) {
  CodePoint result;
  const auto size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                       static_cast<utf8proc_ssize_t>(text.size() - at), &result.value);
  if (size <= 0) return {0xFFFD, 1, false};
  result.size_bytes = static_cast<std::size_t>(size);
  return result;
}

/// Counts code points; each invalid byte counts as one.
[[nodiscard]] inline std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).size_bytes) ++count;
  return count;
}

/// Returns the text with a U+FFFD for each beginning of a letter without its end, and for each other invalid byte, like
/// bytes.decode(errors="replace") of Python.
[[nodiscard]] inline std::string readable(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    auto [value, size, valid] = decode_utf8(text, at);
    if (!valid)
      for (const std::size_t begun : {2, 3})
        if (decode_utf8(std::string(text.substr(at, begun)) + "\x80\x80", 0).size_bytes > begun)
          size = begun;
    result += valid ? text.substr(at, size) : "\uFFFD";
    at += size;
  }
  return result;
}

/// Returns the text without a byte order mark. Throws unless it is UTF-8 without a zero byte; the error names `name`
/// and the byte's position.
[[nodiscard]] inline std::string_view checked_utf8(std::string_view bytes,
                                                   const std::string& name) {
  const auto known = dhp::detail::known_file(bytes);
  const bool sent = known.starts_with("a Git LFS") || known.starts_with("an HTML");
  dhp::check(!sent, "", name, ", byte 0: is ", known, ", not the text");
  using namespace std::string_view_literals;
  const bool wide = bytes.starts_with("\xFF\xFE\0\0"sv) || bytes.starts_with("\0\0\xFE\xFF"sv);
  const auto* const kind = wide ? "UTF-32" : "UTF-16";
  dhp::check(!wide && !bytes.starts_with("\xFF\xFE") && !bytes.starts_with("\xFE\xFF"), "", name,
             ", byte 0: is ", kind, "; iconv -f ", kind, " -t UTF-8 converts it");
  for (std::size_t at = 0; at < bytes.size();) {
    dhp::check(bytes[at] != '\0', "", name, ", byte ", at, ": a zero byte; this is ",
               known.empty() ? "a binary file" : known, ", not text");
    const auto point = decode_utf8(bytes, at);
    dhp::check(point.valid, "", name, ", byte ", at, ": not UTF-8 (a byte of value ",
               int{static_cast<unsigned char>(bytes[at])}, known.empty() ? "" : "; this is ", known,
               "); convert the file with iconv, or give a text file");
    at += point.size_bytes;
  }
  return bytes.substr(bytes.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

}  // namespace examples
