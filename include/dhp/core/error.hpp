// An error message is one sentence: what is wrong, where, and what to do. check() stays active in release builds.
#pragma once

#include <dhp/core/text.hpp>

#include <exception>
#include <new>
#include <source_location>
#include <stdexcept>
#include <string>
#include <system_error>

namespace dhp {
namespace detail {
/// A view of a message's beginning, with the source location of the code that calls check() or fail().
struct Located {
  std::string_view text;
  std::source_location where;
  Located(const char* beginning, std::source_location here = std::source_location::current())
      : text(beginning), where(here) {}
  Located(std::string_view beginning, std::source_location here = std::source_location::current())
      : text(beginning), where(here) {}
  Located(const std::string& beginning, std::source_location here = std::source_location::current())
      : text(beginning), where(here) {}
};
}  // namespace detail

/// The exception that dhp throws. what() returns the message followed by the source location.
class Error : public std::runtime_error {
 public:
  explicit Error(const detail::Located& sentence)
      : Error(std::string(sentence.text), sentence.where) {}
  Error(const std::string& sentence, std::source_location where)
      : std::runtime_error(
            concat(sentence, " [", short_name(where.file_name()), ":", where.line(), "]")),
        sentence_(sentence),
        where_(where) {}

  /// Returns the message without the source location, for the users of a program.
  [[nodiscard]] const std::string& sentence() const noexcept { return sentence_; }
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  static std::string_view short_name(std::string_view path) {
    const auto start = path.rfind("dhp/");
    return path.substr(start == path.npos ? path.rfind('/') + 1 : start);
  }

  std::string sentence_;
  std::source_location where_;
};

namespace detail {
/// Returns the message of any exception, without the source location of an Error.
[[nodiscard]] inline std::string sentence_of(const std::exception& error) {
  if (const auto* const own = dynamic_cast<const Error*>(&error)) return own->sentence();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "out of memory; less data, a smaller model or a smaller micro-batch needs less";
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return concat("a thread cannot be started (", error.what(), "); raise ulimit -u and -v");
  return error.what();
}
/// Returns a rank's sentence as "rank 3: why", or `why` alone if it begins with the rank at fault.
[[nodiscard]] inline std::string said_by(int rank, const std::string& why) {
  return why.starts_with("rank ") ? why : concat("rank ", rank, ": ", why);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_with(const Located& first,
                                                             std::initializer_list<TextPart> rest) {
  throw Error(std::string(first.text) + text_of(rest), first.where);
}
}  // namespace detail

/// Throws an Error with the message first + rest... and the source location of the caller.
[[noreturn]] void fail(detail::Located first, const auto&... rest) {
  detail::fail_with(first, {rest...});
}

/// check(ok, "op: what is wrong, ", value, "; what would be right"): throws Error if ok is false.
void check(bool ok, detail::Located first, const auto&... rest) {
  if (!ok) [[unlikely]]
    fail(first, rest...);
}

}  // namespace dhp
