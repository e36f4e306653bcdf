// Splits a text into pieces for byte-level BPE, which never merges across two pieces. The pieces are the matches of the
// regular expressions of GPT-2 and its successors, by Unicode's categories.
#pragma once

#include "../data/utf8.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace examples {

/// The regular expressions in tokenizer.json that are supported.
enum class SplitRule { gpt2, llama3, qwen2 };
inline constexpr std::string_view llama3_pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
inline constexpr std::string_view qwen2_pattern =  // each digit is a piece
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
inline constexpr std::string_view gpt2_pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

class Splitter {
 public:
  Splitter(std::string_view text, SplitRule rule) : text_(text), rule_(rule) {}

  /// Calls take(piece) for each piece, in order; joined, the pieces are the text.
  template <class Take>
  void pieces(Take&& take) const {
    for (std::size_t at = 0; at < text_.size();) {
      const auto end = end_of_piece(at);
      take(text_.substr(at, end - at));
      at = end;
    }
  }

 private:
  enum class Kind { letter, number, space, other, end };
  struct Point {
    Kind kind = Kind::end;
    std::size_t next = 0;
    utf8proc_int32_t value = 0;
  };

  [[nodiscard]] Point point(std::size_t at) const {
    if (at >= text_.size()) return {Kind::end, at};
    const auto decoded = decode_utf8(text_, at);
    const auto value = decoded.value;
    const auto next = at + decoded.size_bytes;
    const auto category = utf8proc_category(value);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
      return {Kind::letter, next, value};
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
      return {Kind::number, next, value};
    const bool space = (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP) ||
                       (value >= '\t' && value <= '\r') || value == 0x85;
    return {space ? Kind::space : Kind::other, next, value};
  }
  [[nodiscard]] bool is_line_end(std::size_t at) const {
    return at < text_.size() && (text_[at] == '\r' || text_[at] == '\n');
  }
  /// Returns the end of the run of one kind that begins at `at`, of at most `most` code points.
  [[nodiscard]] std::size_t run(Kind kind, std::size_t at, std::size_t most = SIZE_MAX) const {
    for (Point now = point(at); now.kind == kind && most > 0; now = point(at), --most)
      at = now.next;
    return at;
  }
  /// Returns the end of 's, 't, 're, 've, 'm, 'll or 'd, or `at` if there is none.
  [[nodiscard]] std::size_t contraction(std::size_t at) const {
    if (text_[at] != '\'') return at;
    constexpr std::array<std::string_view, 7> known{"s", "t", "re", "ve", "m", "ll", "d"};
    const bool folds = rule_ != SplitRule::gpt2;
    const auto rest = text_.substr(at + 1);
    if (folds && rest.starts_with("\u017F")) return at + 3;  // if case is ignored, a long s is an s
    for (const auto each : known)
      if (rest.size() >= each.size() &&
          std::equal(each.begin(), each.end(), rest.begin(), [&](char a, char b) {
            return a == b || (folds && b >= 'A' && b <= 'Z' && a == b + 32);
          }))
        return at + 1 + each.size();
    return at;
  }

  [[nodiscard]] std::size_t end_of_piece(std::size_t at) const {
    if (const auto end = contraction(at); end > at) return end;
    const auto first = point(at);
    const auto after = text_[at] == ' ' ? first.next : at;  // skips a pattern's optional space
    if (rule_ == SplitRule::gpt2) {
      const auto kind = point(after).kind;
      if (kind != Kind::space && kind != Kind::end) return run(kind, after);
      return end_of_spaces(at);
    }
    if (first.kind == Kind::letter) return run(Kind::letter, at);
    if (first.kind != Kind::number && !is_line_end(at))
      if (const auto end = run(Kind::letter, first.next); end > first.next) return end;
    if (first.kind == Kind::number)
      return run(Kind::number, at, rule_ == SplitRule::llama3 ? 3 : 1);
    if (auto end = run(Kind::other, after); end > after) {
      while (is_line_end(end)) ++end;
      return end;
    }
    const auto spaces = run(Kind::space, at);
    for (auto end = spaces; end > at; --end)
      if (is_line_end(end - 1)) return end;
    return end_of_spaces(at);
  }
  /// Returns the end of a run of spaces. If text follows, the last of several spaces belongs to the next piece.
  [[nodiscard]] std::size_t end_of_spaces(std::size_t at) const {
    std::size_t before = at, end = at;
    for (Point now = point(at); now.kind == Kind::space; now = point(end)) {
      before = end;
      end = now.next;
    }
    return end == text_.size() || before == at ? end : before;
  }

  std::string_view text_;
  SplitRule rule_;
};

}  // namespace examples
