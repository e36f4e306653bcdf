// Fields serializes values, for messages between ranks and for files that stay on one machine. Reading malformed bytes
// never throws.
#pragma once

#include <dhp/core/config.hpp>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Appends a number as four big-endian bytes.
inline void append_number(std::string& to, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>((number >> shift) & 255);
}
/// Appends the length of a field, then its bytes.
inline void append_field(std::string& to, std::string_view field) {
  append_number(to, static_cast<std::uint32_t>(field.size()));
  to += field;
}

/// Reads fields from the front; each call returns nullopt if bytes are missing.
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

/// Serializes and parses structs, in native byte order. A struct lists its fields once for both directions: in
/// `void pass(Fields&)`, or in a static `visit(self, field)`, which also names them.
class Fields {
 public:
  [[nodiscard]] static std::string written(auto value) {
    Fields to;
    to(value);
    return std::move(to.bytes_);
  }
  /// Returns nullopt if the bytes are not a serialized T.
  template <class T>
  [[nodiscard]] static std::optional<T> parsed(std::string_view bytes) {
    Fields from;
    from.from_.emplace(bytes);
    T value{};
    from(value);
    if (!from.good_ || !from.from_->empty()) return std::nullopt;
    return value;
  }

  void operator()(auto&... values) { (pass(values), ...); }

 private:
  struct Nameless {
    Fields& fields;
    void operator()(const char*, auto& value) const { fields(value); }
  };

  Fields() = default;
  void pass(std::string& text) {
    if (!from_) return append_field(bytes_, text);
    auto read = from_->field();
    good_ = good_ && read;
    if (read) text = std::move(*read);
  }
  void pass(bool& flag) {
    char letter = flag ? 1 : 0;
    pass(letter);
    flag = letter != 0;
  }
  template <class T>
  void pass(std::vector<T>& list) {
    auto count = list.size();
    pass(count);
    for (std::size_t at = 0; good_ && at < count; ++at)
      pass(from_ ? list.emplace_back() : list[at]);
  }
  template <class A, class B>
  void pass(std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class T>
  void pass(T& value) {
    if constexpr (requires { value.pass(*this); }) {
      value.pass(*this);
    } else if constexpr (requires { T::visit(value, Nameless{*this}); }) {
      T::visit(value, Nameless{*this});
    } else {
      static_assert(std::is_trivially_copyable_v<T>, "a struct needs void pass(Fields&)");
      std::string text(reinterpret_cast<const char*>(&value), sizeof value);
      pass(text);
      if (text.size() == sizeof value) std::memcpy(&value, text.data(), sizeof value);
      else good_ = false;
    }
  }

  std::string bytes_;
  std::optional<FieldReader> from_;  // empty when writing
  bool good_ = true;                 // false after a malformed field
};

}  // namespace dhp::detail
