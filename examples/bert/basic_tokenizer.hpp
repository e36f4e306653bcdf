// The first half of BERT's tokenizer: splits text into words by the rules of Hugging Face's BertTokenizer. It drops
// control characters and splits at spaces; each punctuation mark and each ideograph is a word of its own. An uncased
// tokenizer lowers letters and, by default, strips accents.
#pragma once

#include "../data/utf8.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

struct BasicTokenizer {
  bool lower_case = true;
  std::optional<bool> strip_accents{};  ///< decomposes letters, drops accents; unset: as lower_case
  bool part_ideographs = true;          ///< makes each ideograph a word of its own

  /// Calls take(word) for each word, in order; a word is valid only during the call. Skips bytes that are not UTF-8.
  template <class Take>
  void words(std::string_view text, Take&& take) const {
    const bool strips = strip_accents.value_or(lower_case);
    std::string word;
    const auto flush = [&] {
      if (!word.empty()) take(std::string_view(word));
      word.clear();
    };
    for (std::size_t at = 0; at < text.size();) {
      const auto point = decode_utf8(text, at);
      at += point.size_bytes;
      if (!point.valid || point.value == 0xFFFD || is_control(point.value)) continue;
      if (is_space(point.value)) {
        flush();
        continue;
      }
      std::array<utf8proc_int32_t, 8> letters{point.value};
      const bool ideograph = part_ideographs && is_ideograph(point.value);
      if (ideograph) flush();
      for (const auto letter : std::span(letters).first(strips ? decompose(letters) : 1)) {
        if (strips && utf8proc_category(letter) == UTF8PROC_CATEGORY_MN) continue;
        const bool alone = is_punctuation(letter);
        if (alone) flush();
        std::array<utf8proc_uint8_t, 4> bytes{};
        const auto size =
            utf8proc_encode_char(lower_case ? utf8proc_tolower(letter) : letter, bytes.data());
        word.append(bytes.begin(), bytes.begin() + size);
        // Only a capital I with a dot has two code points in lower case; stripping accents drops the dot.
        if (lower_case && letter == 0x130) word += "\u0307";
        if (alone) flush();
      }
      if (ideograph) flush();
    }
    flush();
  }
  [[nodiscard]] std::vector<std::string> words(std::string_view text) const {
    std::vector<std::string> made;
    words(text, [&](std::string_view word) { made.emplace_back(word); });
    return made;
  }

 private:
  using Point = utf8proc_int32_t;

  [[nodiscard]] static bool is_between(Point point, Point first, Point last) {
    return first <= point && point <= last;
  }
  /// Returns whether BERT takes this for a space: a tab, a line end, or a separator of Unicode.
  [[nodiscard]] static bool is_space(Point point) {
    return is_between(point, '\t', '\r') ||
           is_between(utf8proc_category(point), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
  }
  /// Returns whether BERT removes this code point: a control, format or private-use character.
  [[nodiscard]] static bool is_control(Point point) {
    const auto category = utf8proc_category(point);
    return (category == UTF8PROC_CATEGORY_CC && point != '\t' && point != '\n' && point != '\r') ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
  }
  /// Returns whether BERT calls it punctuation: any ASCII character except letters, digits, spaces and controls counts.
  [[nodiscard]] static bool is_punctuation(Point point) {
    if (point < 0x80)
      return is_between(point, '!', '/') || is_between(point, ':', '@') ||
             is_between(point, '[', '`') || is_between(point, '{', '~');
    return is_between(utf8proc_category(point), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
  }
  /// Returns whether the code point is in a block that BERT's tokenizer calls Chinese.
  [[nodiscard]] static bool is_ideograph(Point point) {
    constexpr Point blocks[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                   {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (const auto& block : blocks)
      if (is_between(point, block[0], block[1])) return true;
    return false;
  }
  /// Decomposes letters[0] canonically, in place; returns the number of code points.
  [[nodiscard]] static std::size_t decompose(std::array<Point, 8>& letters) {
    if (letters[0] < 0x80) return 1;
    int last_boundary = 0;
    const auto size = utf8proc_decompose_char(letters[0], letters.data(), letters.size(),
                                              UTF8PROC_DECOMPOSE, &last_boundary);
    return static_cast<std::size_t>(size);  // Unicode's longest decomposition has 4
  }
};

}  // namespace examples
