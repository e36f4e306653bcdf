// A corpus in three flat arrays: items, the starts of sentences, and the starts of documents. Items are bytes (a text)
// or token ids (the same text, tokenized once). No sentence needs a string or an allocation. The corpus owns its
// arrays, or they lie in a mapped file.
#pragma once

#include <dhp/core/shape.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

template <class Item>
class Documents {
 public:
  struct Arrays {
    std::span<const Item> items;
    std::span<const std::int64_t> sentences;  ///< starts of sentences in items, and the end
    std::span<const std::int64_t> documents;  ///< first sentence of each document, and the end
  };

  Documents() = default;
  /// Refers to arrays that `keeper` keeps alive. Nothing can be appended to them.
  Documents(const Arrays& arrays, std::shared_ptr<const std::byte> keeper)
      : elsewhere_(arrays), keeper_(std::move(keeper)) {}

  /// Appends a sentence to the open document; ignores a sentence without items.
  void add_sentence(std::span<const Item> sentence) {
    if (sentence.empty()) return;
    dhp::check(keeper_ == nullptr, "a sentence is appended to a text that lies in a file");
    items_.insert(items_.end(), sentence.begin(), sentence.end());
    sentences_.push_back(static_cast<std::int64_t>(items_.size()));
  }
  /// Closes the open document; drops a document without sentences.
  void end_document() {
    if (documents_.back() != sentences()) documents_.push_back(sentences());
  }

  /// Returns the number of closed documents.
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(arrays().documents.size()) - 1;
  }
  [[nodiscard]] std::int64_t sentences() const {
    return static_cast<std::int64_t>(arrays().sentences.size()) - 1;
  }
  /// Returns the range of a document's sentences; numbers continue from one document to the next.
  [[nodiscard]] dhp::Range sentences_of(std::int64_t document) const {
    dhp::check(document >= 0 && document < size(), "no document ", document, " among ", size());
    const auto documents = arrays().documents.subspan(static_cast<std::size_t>(document));
    return {documents[0], documents[1]};
  }
  [[nodiscard]] std::span<const Item> sentence(std::int64_t number) const {
    dhp::check(number >= 0 && number < sentences(), "no sentence ", number, " among ", sentences());
    const auto all = arrays();
    const auto ends = all.sentences.subspan(static_cast<std::size_t>(number));
    const auto first = static_cast<std::size_t>(ends[0]);
    return all.items.subspan(first, static_cast<std::size_t>(ends[1]) - first);
  }
  /// Returns all items, one sentence after another.
  [[nodiscard]] std::span<const Item> items() const { return arrays().items; }
  [[nodiscard]] Arrays arrays() const {
    return keeper_ ? elsewhere_ : Arrays{items_, sentences_, documents_};
  }

  friend bool operator==(const Documents& a, const Documents& b) {
    const auto x = a.arrays(), y = b.arrays();
    return std::ranges::equal(x.items, y.items) && std::ranges::equal(x.sentences, y.sentences) &&
           std::ranges::equal(x.documents, y.documents);
  }

 private:
  std::vector<Item> items_;
  std::vector<std::int64_t> sentences_{0};
  std::vector<std::int64_t> documents_{0};
  Arrays elsewhere_{};
  std::shared_ptr<const std::byte> keeper_;  // keeps the arrays of elsewhere_
};

using Text = Documents<char>;
using TokenText = Documents<std::int32_t>;

[[nodiscard]] inline std::string_view sentence_text(const Text& text, std::int64_t number) {
  const auto sentence = text.sentence(number);
  return {sentence.data(), sentence.size()};
}

}  // namespace examples
