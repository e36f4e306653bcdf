// BERT's tokenizer: words, then pieces of words.
#pragma once

#include <dhp/data/file.hpp>

#include "../data/documents.hpp"
#include "../data/utf8.hpp"
#include "vocabulary.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

/// The first half: words by the rules of Hugging Face's BertTokenizer. Control characters are dropped, spaces separate
/// words, and each punctuation mark and each ideograph is a word of its own. An uncased tokenizer lowers letters and,
/// by default, strips accents.
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
    std::vector<std::string> result;
    words(text, [&](std::string_view word) { result.emplace_back(word); });
    return result;
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
  /// Returns whether the code point is in a block that BERT's tokenizer calls Chinese. The last but one begins where
  /// Hugging Face's tokenizers begin it, 256 later than Unicode's.
  [[nodiscard]] static bool is_ideograph(Point point) {
    constexpr Point blocks[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                   {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
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

/// The second half: splits a word into pieces from a vocabulary, always taking the longest piece that fits (Wu et al.
/// 2016, arXiv:1609.08144), and turns a whole text into token ids.
class WordPiece {
 public:
  static constexpr std::size_t longest_word = 100;  ///< code points; longer words are [UNK]

  explicit WordPiece(Vocabulary vocabulary, BasicTokenizer basic = {},
                     std::size_t longest = longest_word)
      : vocabulary_(std::move(vocabulary)), basic_(basic), longest_word_(longest) {}

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  [[nodiscard]] const BasicTokenizer& basic() const { return basic_; }
  /// Returns a text with all rules that determine the tokens, without the vocabulary.
  [[nodiscard]] std::string rules() const {
    return dhp::concat("lower_case ", basic_.lower_case, ", strip_accents ",
                       basic_.strip_accents.value_or(basic_.lower_case), ", part_ideographs ",
                       basic_.part_ideographs, ", longest_word ", longest_word_);
  }

  /// Appends the pieces of one word. Appends [UNK] instead if the word is too long, or no piece covers a part of it.
  void encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
    const auto before = out.size();
    if (count_code_points(word) <= longest_word_) {
      std::string piece;
      while (!word.empty()) {
        const auto size = longest_piece(word, out.size() != before, piece, out);
        if (size == 0) break;
        word.remove_prefix(size);
      }
    }
    if (word.empty()) return;
    out.resize(before);
    out.push_back(vocabulary_.unknown());
  }

  /// Returns the ids of a text, without [CLS] and [SEP].
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    basic_.words(text, [&](std::string_view word) { encode_word(word, ids); });
    return ids;
  }

  /// Encodes the whole text; the pieces of each distinct word are looked up once. Sentences without a word are left
  /// out.
  [[nodiscard]] TokenText encode(const Text& text) const {
    std::unordered_map<std::string, std::pair<std::size_t, std::size_t>> known;
    std::vector<std::int32_t> pieces;
    std::vector<std::int32_t> ids;
    std::string key;
    TokenText result;
    for (std::int64_t document = 0; document < text.size(); ++document) {
      const auto sentences = text.sentences_of(document);
      for (auto number = sentences.first; number < sentences.last; ++number) {
        ids.clear();
        basic_.words(sentence_text(text, number), [&](std::string_view word) {
          key = word;
          const auto [place, fresh] = known.try_emplace(key, pieces.size(), 0);
          if (fresh) {
            encode_word(word, pieces);
            place->second.second = pieces.size();
          }
          const auto [first, last] = place->second;
          ids.insert(ids.end(), pieces.begin() + static_cast<std::ptrdiff_t>(first),
                     pieces.begin() + static_cast<std::ptrdiff_t>(last));
        });
        result.add_sentence(ids);
      }
      result.end_document();
    }
    return result;
  }

 private:
  // Appends the longest piece with which `word` begins. Returns its length in bytes within the word; 0: there is none.
  std::size_t longest_piece(std::string_view word, bool continued, std::string& piece,
                            std::vector<std::int32_t>& out) const {
    const std::size_t prefix = continued ? 2 : 0;
    const auto longest = vocabulary_.longest_bytes();
    piece = continued ? "##" : "";
    piece += word.substr(0, longest > prefix ? longest - prefix : 0);
    for (; piece.size() > prefix; piece.pop_back()) {
      // A piece that ends inside a code point is never found: tokens are whole code points.
      const auto id = vocabulary_.find(piece);
      if (id < 0) continue;
      out.push_back(id);
      return piece.size() - prefix;
    }
    return 0;
  }

  Vocabulary vocabulary_;
  BasicTokenizer basic_;
  std::size_t longest_word_;
};

/// Parses the contents of vocab.txt; `name` is for errors. Lines may end with CR LF.
[[nodiscard]] inline Vocabulary parse_vocabulary(std::string_view bytes, const std::string& name) {
  dhp::check(!bytes.empty(), "", name, ": the file is empty");
  std::istringstream lines{std::string(checked_utf8(bytes, name))};
  std::vector<std::string> tokens;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    tokens.push_back(line);
  }
  return Vocabulary(std::move(tokens), name);
}

[[nodiscard]] inline Vocabulary load_vocabulary(const std::string& path) {
  dhp::check(!dhp::detail::ends_in(path, ".json"), path,
             ": is JSON; BERT needs a vocab.txt with one token per line");
  return parse_vocabulary(dhp::detail::text_in(dhp::read_file(path, std::size_t{1} << 30)), path);
}

}  // namespace examples
