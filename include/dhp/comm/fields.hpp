// Fields: numbers and texts one after another in a string of bytes, and how they are taken out again when
// nothing is known about who wrote them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dhp {

/// Four bytes, the highest first.
inline void append_number(std::string& to, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>((number >> shift) & 255);
}
/// A length and that many bytes: two fields are never mistaken for one, or for two others.
inline void append_field(std::string& to, std::string_view field) {
  append_number(to, static_cast<std::uint32_t>(field.size()));
  to += field;
}

/// Takes from the front; none where what is left is too short, whatever the bytes are.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : left_(bytes) {}

  [[nodiscard]] std::optional<std::string> bytes(std::size_t count) {
    if (left_.size() < count) return std::nullopt;
    std::string taken(left_.substr(0, count));
    left_.remove_prefix(count);
    return taken;
  }
  [[nodiscard]] std::optional<std::uint32_t> number() {
    const auto taken = bytes(4);
    if (!taken) return std::nullopt;
    std::uint32_t value = 0;
    for (const char byte : *taken) value = value << 8 | static_cast<unsigned char>(byte);
    return value;
  }
  [[nodiscard]] std::optional<std::string> field() {
    const auto size = number();
    return size ? bytes(*size) : std::nullopt;
  }
  [[nodiscard]] bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace dhp
