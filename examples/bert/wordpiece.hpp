// The second half of BERT's tokenizer: splits a word into pieces from a vocabulary, always taking the longest piece
// that fits (Wu et al. 2016, arXiv:1609.08144), and turns a whole text into token ids.
#pragma once

#include <dhp/data/file.hpp>

#include "../data/documents.hpp"
#include "basic_tokenizer.hpp"
#include "vocabulary.hpp"

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

class WordPiece {
 public:
  static constexpr std::size_t longest_word = 100;  ///< code points; longer words are [UNK]

  explicit WordPiece(Vocabulary vocabulary, BasicTokenizer basic = {},
                     std::size_t longest = longest_word)
      : vocabulary_(std::move(vocabulary)), basic_(basic), longest_word_(longest) {}

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
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
    TokenText made;
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
        made.add_sentence(ids);
      }
      made.end_document();
    }
    return made;
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
  const auto bytes = dhp::read_file(path, std::size_t{1} << 30);
  return parse_vocabulary({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace examples
