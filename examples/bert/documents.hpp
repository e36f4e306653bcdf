// A corpus in three flat arrays: items, in sentences, in documents. Items are bytes (a text) or
// token ids (the same text, tokenised once). No string and no allocation for each sentence.
#pragma once

#include <dhp/core/shape.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace examples {

template <class Item>
class Documents {
 public:
  /// Appends a sentence to the open document; one without items is left out.
  void add_sentence(std::span<const Item> sentence) {
    if (sentence.empty()) return;
    items_.insert(items_.end(), sentence.begin(), sentence.end());
    sentences_.push_back(static_cast<std::int64_t>(items_.size()));
  }
  /// Closes the open document; one without sentences is left out.
  void end_document() {
    if (documents_.back() != sentences()) documents_.push_back(sentences());
  }

  /// Closed documents.
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(documents_.size()) - 1;
  }
  [[nodiscard]] std::int64_t sentences() const {
    return static_cast<std::int64_t>(sentences_.size()) - 1;
  }
  /// The sentences of a document; sentences count through all documents.
  [[nodiscard]] dhp::Range sentences_of(std::int64_t document) const {
    dhp::check(document >= 0 && document < size(), "no document ", document, " among ", size());
    const auto at = static_cast<std::size_t>(document);
    return {documents_[at], documents_[at + 1]};
  }
  [[nodiscard]] std::span<const Item> sentence(std::int64_t number) const {
    dhp::check(number >= 0 && number < sentences(), "no sentence ", number, " among ", sentences());
    const auto at = static_cast<std::size_t>(number);
    const auto first = static_cast<std::size_t>(sentences_[at]);
    return std::span(items_).subspan(first, static_cast<std::size_t>(sentences_[at + 1]) - first);
  }
  /// All items, one sentence after another.
  [[nodiscard]] std::span<const Item> items() const { return items_; }

  friend bool operator==(const Documents&, const Documents&) = default;

 private:
  std::vector<Item> items_;
  std::vector<std::int64_t> sentences_{0};  // where in items_ each begins, and the end
  std::vector<std::int64_t> documents_{0};  // which sentence each begins with, and the end
};

using Text = Documents<char>;
using TokenText = Documents<std::int32_t>;

[[nodiscard]] inline std::string_view sentence_text(const Text& text, std::int64_t number) {
  const auto sentence = text.sentence(number);
  return {sentence.data(), sentence.size()};
}

}  // namespace examples
