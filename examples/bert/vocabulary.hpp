// A WordPiece vocabulary: token <-> id, and the special tokens. The file is BERT's vocab.txt, with one token per line:
// its id is the number of lines before it. A token that continues a word begins with ##.
#pragma once

#include <dhp/core/open_file.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace examples {

/// Cheap to copy: copies share the tokens.
class Vocabulary {
 public:
  static constexpr std::array<std::string_view, 5> special_tokens{"[PAD]", "[UNK]", "[CLS]",
                                                                  "[SEP]", "[MASK]"};
  /// Token i gets id i. Throws if there is no token, a token is empty or repeated, or one of the five special tokens is
  /// missing; the error names `name` and the line (i + 1).
  explicit Vocabulary(std::vector<std::string> tokens, const std::string& name = "vocabulary") {
    auto result = std::make_shared<Tables>();
    result->tokens = std::move(tokens);
    dhp::check(!result->tokens.empty(), "", name, ": holds no token");
    dhp::check(
        result->tokens.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
        "", name, ": holds more tokens than 32-bit ids");
    result->ids.reserve(result->tokens.size());
    for (std::size_t at = 0; at < result->tokens.size(); ++at) {
      const std::string_view token = result->tokens[at];
      dhp::check(!token.empty(), "", name, ", line ", at + 1, ": an empty token");
      const auto [place, fresh] = result->ids.emplace(token, static_cast<std::int32_t>(at));
      dhp::check(fresh, "", name, ", line ", at + 1, ": the token \"", token,
                 "\" stands already in line ", place->second + 1);
      result->longest_bytes = std::max(result->longest_bytes, token.size());
    }
    for (std::size_t at = 0; at < special_tokens.size(); ++at) {
      const auto found = result->ids.find(special_tokens[at]);
      dhp::check(found != result->ids.end(), "", name, ": has no token ", special_tokens[at],
                 "; BERT needs [PAD] [UNK] [CLS] [SEP] [MASK]");
      result->special[at] = found->second;
    }
    dhp::check(result->tokens.size() > special_tokens.size(), "", name,
               ": holds nothing but special tokens");
    tables_ = std::move(result);
  }

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(tokens().size()); }
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tables_->tokens; }
  [[nodiscard]] const std::string& token(std::int32_t id) const {
    dhp::check(id >= 0 && id < size(), "no token ", id, " in a vocabulary of ", size());
    return tokens()[static_cast<std::size_t>(id)];
  }
  /// Returns the id of a token, or -1.
  [[nodiscard]] std::int32_t find(std::string_view token) const {
    const auto found = tables_->ids.find(token);
    return found == tables_->ids.end() ? -1 : found->second;
  }
  [[nodiscard]] std::int32_t pad() const { return tables_->special[0]; }
  [[nodiscard]] std::int32_t unknown() const { return tables_->special[1]; }
  [[nodiscard]] std::int32_t classify() const { return tables_->special[2]; }  ///< [CLS]
  [[nodiscard]] std::int32_t separator() const { return tables_->special[3]; }
  [[nodiscard]] std::int32_t mask() const { return tables_->special[4]; }

  [[nodiscard]] bool is_special(std::int32_t id) const {
    const auto& special = tables_->special;
    return std::find(special.begin(), special.end(), id) != special.end();
  }
  /// Returns whether the token continues a word.
  [[nodiscard]] bool continues(std::int32_t id) const { return token(id).starts_with("##"); }
  [[nodiscard]] std::size_t longest_bytes() const { return tables_->longest_bytes; }

 private:
  struct Tables {
    std::vector<std::string> tokens;
    std::unordered_map<std::string_view, std::int32_t> ids;  // views into tokens
    std::array<std::int32_t, special_tokens.size()> special{};
    std::size_t longest_bytes = 0;
  };
  std::shared_ptr<const Tables> tables_;
};

/// Returns the contents of vocab.txt, which load_vocabulary() of wordpiece.hpp reads.
[[nodiscard]] inline std::string vocabulary_text(const Vocabulary& vocabulary) {
  std::string lines;
  for (const auto& token : vocabulary.tokens()) lines += token + '\n';
  return lines;
}
}  // namespace examples
