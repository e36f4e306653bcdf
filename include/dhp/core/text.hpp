// concat(parts...) joins strings, numbers and values that have a to_text() into one std::string. It avoids <sstream>
// and <format>, which are slow to compile.
#pragma once

#include <dhp/core/config.hpp>

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <system_error>

namespace dhp {

/// Returns a location such as "trainer.hpp:120".
[[nodiscard]] inline std::string to_text(const std::source_location& where) {
  const std::string_view file(where.file_name());
  return std::string(file.substr(file.rfind('/') + 1)) + ':' + std::to_string(where.line());
}

namespace detail {
inline void append_text(std::string& out, std::string_view part) { out += part; }
/// Appends a number. Callers widen integers first, so that only a few instances are compiled.
[[gnu::noinline]] void append_digits(std::string& out, auto part) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, part).ptr;  // shortest exact form
  if (part != part) out += "nan";                                            // never "-nan"
  else out.append(digits, end);
}
template <class Number>
  requires(std::integral<Number> || std::floating_point<Number>)
void append_text(std::string& out, Number part) {
  if constexpr (std::same_as<Number, char>) out += part;
  else if constexpr (std::same_as<Number, bool>) out += part ? "true" : "false";
  else if constexpr (std::floating_point<Number>) append_digits(out, part);
  else if constexpr (std::signed_integral<Number>) append_digits<long long>(out, part);
  else append_digits<unsigned long long>(out, part);
}
/// Appends a value of any type whose namespace has `std::string to_text(const T&)`.
template <class T>
  requires requires(const T& part) {
    { to_text(part) } -> std::convertible_to<std::string>;
  }
void append_text(std::string& out, const T& part) { out += to_text(part); }

/// A reference to one part of a text. Functions that join parts are compiled once, not for each combination of types.
class TextPart {
 public:
  TextPart(const char* part) : TextPart(std::string_view(part)) {}
  TextPart(const std::string& part) : TextPart(std::string_view(part)) {}
  TextPart(std::string_view part)
      : of_(reinterpret_cast<const std::byte*>(part.data())),
        size_(part.size()),
        append_([](std::string& out, const TextPart& self) {
          out.append(reinterpret_cast<const char*>(self.of_), self.size_);
        }) {}
  /// Refers to any other type that has an append_text().
  template <class T>
    requires(!std::is_array_v<T> && !std::convertible_to<const T&, std::string_view>)
  TextPart(const T& part)
      : of_(reinterpret_cast<const std::byte*>(std::addressof(part))),
        append_([](std::string& out, const TextPart& self) {
          detail::append_text(out, *reinterpret_cast<const T*>(self.of_));
        }) {}
  void append_to(std::string& out) const { append_(out, *this); }

 private:
  const std::byte* of_;
  std::size_t size_ = 0;
  void (*append_)(std::string&, const TextPart&);
};
}  // namespace detail

[[nodiscard, gnu::noinline]] inline std::string text_of(
    std::initializer_list<detail::TextPart> parts) {
  std::string out;
  for (const auto& part : parts) part.append_to(out);
  return out;
}
[[nodiscard]] std::string concat(const auto&... parts) { return text_of({parts...}); }

namespace detail {
/// Returns a number with its noun: "1 step" or "2 steps".
[[nodiscard]] std::string pluralize(std::integral auto number, std::string_view thing) {
  const bool takes_es = thing.ends_with('s') || thing.ends_with("tch");
  return concat(number, " ", thing, number == 1 ? "" : takes_es ? "es" : "s");
}
/// Parses the whole text as a number; returns nullopt if it is not one.
template <class Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
}  // namespace detail

}  // namespace dhp
