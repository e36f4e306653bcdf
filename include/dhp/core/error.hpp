// Errors are one sentence for people: what, where, and the way out. check() is always on.
#pragma once

#include <dhp/core/text.hpp>

#include <source_location>
#include <stdexcept>
#include <string>

namespace dhp {

/// The exception of dhp. what() is the sentence, then the source location.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence,
                 std::source_location where = std::source_location::current())
      : std::runtime_error(sentence + " [" + short_name(where.file_name()) + ":" +
                           std::to_string(where.line()) + "]"),
        sentence_(sentence),
        where_(where) {}

  /// The sentence without the source location, for users of a program.
  [[nodiscard]] const std::string& sentence() const noexcept { return sentence_; }
  /// The source location of the check.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  static std::string short_name(const char* path) {
    const std::string_view full(path);
    const auto start = full.rfind("dhp/");
    return std::string(start == full.npos ? full.substr(full.rfind('/') + 1) : full.substr(start));
  }

  std::string sentence_;
  std::source_location where_;
};

namespace detail {
/// A text with its source location, so that check() can name its caller. A view.
struct Located {
  std::string_view text;
  std::source_location where;
  template <class Text>
    requires std::convertible_to<const Text&, std::string_view> Located(
        const Text& beginning, std::source_location here = std::source_location::current())
        : text(beginning), where(here) {}
};
}  // namespace detail

/// Throws Error(first + rest...) located at the caller.
template <class... Parts>
[[noreturn]] void fail(detail::Located first, const Parts&... rest) {
  throw Error(concat(first.text, rest...), first.where);
}

/// check(ok, "op: what is wrong, ", value, "; what would be right"): throws Error unless ok.
template <class... Parts>
void check(bool ok, detail::Located first, const Parts&... rest) {
  if (!ok) [[unlikely]]
    fail(first, rest...);
}

}  // namespace dhp
