// The first half of BERT's tokenizer: from text to words. Control characters go, spaces part words,
// each punctuation mark and each ideograph is a word of its own; uncased: lower case without accents.
// Agrees with Hugging Face's BertTokenizer on Latin, Greek and Cyrillic text, punctuation and unified
// ideographs; not decomposed, as theirs are: Hangul, kana with marks, compatibility ideographs.
#pragma once

#include <dhp/data/unicode.hpp>
#include <dhp/data/utf8.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace dhp {

struct BasicTokenizer {
  bool lower_case = true;  ///< and without accents; false: letters stay as they are

  /// take(word) for each word, in order; a word is valid only during the call. Bytes that are not UTF-8
  /// are left out.
  template <class Take>
  void words(std::string_view text, Take&& take) const {
    std::string word;
    const auto flush = [&] {
      if (!word.empty()) take(std::string_view(word));
      word.clear();
    };
    for (std::size_t at = 0; at < text.size();) {
      const auto point = decode_utf8(text, at);
      at += point.size_bytes;
      if (!point.valid || point.value == 0xFFFD || unicode::is_control(point.value)) continue;
      if (unicode::is_space(point.value)) {
        flush();
        continue;
      }
      if (lower_case && unicode::is_mark(point.value)) continue;
      const auto letter = lower_case ? unicode::fold(point.value) : point.value;
      const bool alone = unicode::is_punctuation(letter) || unicode::is_ideograph(letter);
      if (alone) flush();
      append_utf8(word, letter);
      if (alone) flush();
    }
    flush();
  }
  [[nodiscard]] std::vector<std::string> words(std::string_view text) const {
    std::vector<std::string> made;
    words(text, [&](std::string_view word) { made.emplace_back(word); });
    return made;
  }
};

}  // namespace dhp
