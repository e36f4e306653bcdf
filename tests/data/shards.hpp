// Shards written byte by byte, and a toy image format, so that these tests need no library.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/data/decoder.hpp>

#include "damage.hpp"

namespace tests {

// A toy image: "TOY" and one letter, whose code is the value of the only pixel.
inline dhp::Image decode_toy(std::span<const std::byte> bytes, const std::string& name,
                             const dhp::DecodeOptions& options) {
  dhp::check(bytes.size() == 4, "", name, ": damaged toy");
  auto result = dhp::Image::blank(1, 1, options.channels);
  for (auto& value : result.pixels) value = std::to_integer<std::uint8_t>(bytes[3]);
  return result;
}
inline std::vector<dhp::Decoder> toy_decoders() { return {{{".toy"}, &decode_toy, "TOY"}}; }

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string result;
  for (int at = 0; at < bytes; ++at) result += static_cast<char>(value >> (8 * at) & 255);
  return result;
}

// Returns a bytes field of a protocol buffer, of up to 16,383 bytes.
inline std::string field(int number, const std::string& bytes) {
  std::string result(1, static_cast<char>(number << 3 | 2));
  if (bytes.size() >= 128) result += static_cast<char>((bytes.size() & 127) | 128);
  result += static_cast<char>(bytes.size() >= 128 ? bytes.size() >> 7 : bytes.size());
  return result + bytes;
}
inline std::string entry(const std::string& name, const std::string& feature) {
  return field(1, field(1, name) + field(2, feature));
}
inline std::string bytes_feature(const std::string& value) { return field(1, field(1, value)); }
inline std::string int_feature(int value, bool packed = true) {
  const std::string digits(1, static_cast<char>(value));
  return field(3, packed ? field(1, digits) : '\x08' + digits);
}
inline std::string example(const std::string& entries) { return field(1, entries); }
inline std::string imagenet(const std::string& image, int label, const std::string& name) {
  return example(
      entry("image/height", int_feature(1)) + entry("image/class/label", int_feature(label)) +
      entry("image/encoded", bytes_feature(image)) + entry("image/filename", bytes_feature(name)));
}

inline std::uint32_t masked(const std::string& text) {
  return dhp::detail::masked_crc32c(std::as_bytes(std::span(text.data(), text.size())));
}
inline std::string record(const std::string& text) {
  const auto length = little_endian(text.size(), 8);
  return length + little_endian(masked(length), 4) + text + little_endian(masked(text), 4);
}

inline std::string octal(std::uint64_t value, std::size_t digits) {
  std::string result(digits, '0');
  for (auto at = digits; at-- > 0; value >>= 3) result[at] = static_cast<char>('0' + (value & 7));
  return result;
}
/// Returns a member of a ustar file.
inline std::string member(const std::string& name, const std::string& contents, char type = '0',
                          const std::string& prefix = {}) {
  std::string header(512, '\0');
  header.replace(0, std::min<std::size_t>(name.size(), 100), name.substr(0, 100));
  header.replace(100, 7, octal(0644, 7));
  header.replace(124, 11, octal(contents.size(), 11));
  header[156] = type;
  header.replace(257, 8,
                 std::string("ustar\0"
                             "00",
                             8));
  header.replace(345, prefix.size(), prefix);
  header.replace(148, 8, "        ");
  int sum = 0;
  for (const char letter : header) sum += static_cast<unsigned char>(letter);
  header.replace(148, 7, octal(static_cast<std::uint64_t>(sum), 6) + '\0');
  return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}
inline const std::string tar_end = std::string(1024, '\0');

}  // namespace tests
